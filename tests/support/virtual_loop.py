"""An asyncio event loop in virtual time: while all tasks sleep, the time of the next one comes."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Waits for no time. A test that moves ``now`` on has blocked it for so long."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class _Impatient(selectors.DefaultSelector):  # type: ignore[valid-type,misc]  # it depends on the system
    """Lets the time pass for which it should wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all tasks wait for ever"
        self._loop.now += max(0.0, timeout)
        return super().select(0)
