"""An asyncio event loop in virtual time: when all tasks sleep, it skips to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits in real time. A test that advances ``now`` simulates a blocked loop."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class _Impatient(selectors.DefaultSelector):  # type: ignore[valid-type,misc]  # it depends on the system
    """Advances virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all tasks wait without a timeout"
        self._loop.now += max(0.0, timeout)
        return super().select(0)
