"""Alarms and pauses of an event loop that come though an exception from outside cuts one off."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextvars import Context

from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import AGAIN

#: Seconds from which on a task waits without a timer: very many may wait so.
FOREVER = threading.TIMEOUT_MAX


class Timers:
    """Those that stand for one ring; they are given it, and a list would show them without end."""

    __slots__ = ("handles",)

    def __init__(self) -> None:
        self.handles: list[asyncio.TimerHandle] = []

    def cancel(self) -> None:
        for handle in self.handles:
            handle.cancel()


class LoopAlarm:
    """Calls a function of its event loop at the earliest of the times asked for.

    Not in the context of who asks: it would be kept for as long as there is something to ring for.
    A ring may be lost, if a signal handler raises an exception there: so a second timer stands
    behind each, and is cancelled when what is to be called has returned.
    """

    __slots__ = ("_at", "_ring", "_timers")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timers = Timers()
        self._at = math.inf

    def set(self, when: float) -> None:
        """Ring by this time."""
        now = monotonic()
        # One that is overdue may never come: the clock of a program's event loop may be frozen.
        if when < self._at or self._at < now:
            first, former = min(when, self._at), self._timers
            # The former are there until the new ones are: this may be interrupted at any line.
            self._timers, self._at = self._timers_after(max(0.0, first - now)), first
            former.cancel()

    def _timers_after(self, delay: float) -> Timers:
        timers, after = Timers(), asyncio.get_running_loop().call_later
        timers.handles.append(after(delay + AGAIN, self._go, timers, context=Context()))
        timers.handles.append(after(delay, self._go, timers, context=Context()))
        return timers

    def _go(self, timers: Timers) -> None:
        if self._timers is timers:
            self._at = math.inf
        self._ring()
        timers.cancel()


async def sleep(seconds: float) -> None:
    """Pause the running task, also if the timer that ends the pause is lost."""
    if seconds <= 0:
        await asyncio.sleep(0)
    else:
        await wait(asyncio.get_running_loop().create_future(), seconds)


async def wait(ready: asyncio.Future[None], seconds: float) -> None:
    """Wait until a future is done, which it is after so many seconds at the latest.

    Two timers see to that: an exception from outside may come as the event loop is about to call
    the first.
    """
    after = asyncio.get_running_loop().call_later
    ends = (seconds, seconds + AGAIN) if seconds < FOREVER else ()
    timers = [after(end, finish, ready) for end in ends]
    try:
        await ready
    finally:
        for timer in timers:
            timer.cancel()


def finish(ready: asyncio.Future[None]) -> None:
    """Have a future done."""
    if not ready.done():
        ready.set_result(None)
