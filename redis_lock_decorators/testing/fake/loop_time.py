"""Event loops in virtual time: their timers are those of the double."""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import Any

from redis_lock_decorators.testing.fake.thread_states import has_sockets
from redis_lock_decorators.testing.fake.virtual_time import VirtualTime


class LoopTime:
    """Has an event loop of the standard library wait in virtual time, until ``end``.

    ``asyncio.sleep``, ``wait_for`` and all other timers of the loop follow. Time does not jump
    while the loop waits for a socket. Other event loops, such as uvloop's, remain in real time.
    """

    def __init__(self, time: VirtualTime, loop: asyncio.AbstractEventLoop) -> None:
        self._time, self._loop = time, loop
        self._is_woken = False
        self._selector: Any = getattr(loop, "_selector", None)
        self._has_patched = isinstance(self._selector, selectors.BaseSelector)
        if self._has_patched:
            self._change(loop)

    def end(self) -> None:
        """Return the loop to real time."""
        if self._has_patched and not self._loop.is_closed():
            for thing, name in ((self._selector, "select"), (self._loop, "time")):
                vars(thing).pop(name, None)
            vars(self._loop).pop("_write_to_self", None)
            self._write()

    def _change(self, loop: Any) -> None:
        self._select, self._write = self._selector.select, loop._write_to_self
        self._selector.select = self._wait
        loop.time = lambda: self._time.now
        loop._write_to_self = self._wake

    def _wake(self) -> None:
        """Called by other threads after they have added a callback."""
        self._write()
        self._is_woken = True
        self._time.wake()

    def _is_ready(self) -> bool:
        loop: Any = self._loop
        return self._is_woken or len(loop._ready) > 0

    def _wait(self, timeout: float | None = None) -> list[Any]:
        """Wait for events, as ``select`` does."""
        self._is_woken = False
        events: list[Any] = self._select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        until = math.inf if timeout is None else self._time.now + timeout

        def poll() -> bool:
            events.extend(self._select(0))
            return bool(events)

        self._time.wait(until, self._is_ready, self._has_no_sockets, poll)
        return events

    def _has_no_sockets(self) -> bool:
        return not has_sockets(self._selector)
