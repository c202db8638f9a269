"""An event loop with real sockets and threads, whose clock only the test advances."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

#: Real seconds without any event after which a test fails.
STUCK = 30.0


class ManualLoop(asyncio.SelectorEventLoop):
    """Waits for real events, but no timer is due before ``time_passes`` is called."""

    def __init__(self) -> None:
        super().__init__(_Waiting())
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class _Waiting(selectors.DefaultSelector):  # type: ignore[valid-type,misc]  # it depends on the system
    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0 if timeout == 0 else STUCK)
        assert events or timeout == 0, "no event arrives, and no time passes"
        return events


async def time_passes(seconds: float) -> None:
    """Advance the clock in small steps, so that the event loop does not seem blocked."""
    loop: Any = asyncio.get_running_loop()
    end = loop.now + seconds
    while loop.now < end:
        loop.now += 0.05
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until a condition is met by real events."""
    limit = time.monotonic() + STUCK
    while not condition():
        assert time.monotonic() < limit, "the condition is never met"
        await asyncio.sleep(0)
