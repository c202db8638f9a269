"""Timers of an event loop that fire even if an exception from outside interrupts their callback."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextvars import Context

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.outcomes import settle
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import AGAIN

#: Seconds from which on a wait needs no timer: many tasks may wait without a limit.
UNLIMITED = threading.TIMEOUT_MAX


class TimerPair:
    """Two timers for one call. A list that contained itself would have an endless ``repr``."""

    __slots__ = ("handles",)

    def __init__(self) -> None:
        self.handles: list[asyncio.TimerHandle] = []

    def cancel(self) -> None:
        for handle in self.handles:
            handle.cancel()


class LoopTimer:
    """Calls a function on its event loop at the earliest of the times it was set to.

    The function runs in an empty context: the timer would keep the context of its caller alive.
    A signal handler may raise an exception in the callback of a timer, so each call has two timers.
    The second one is cancelled when the function has returned.

    In a forked child that runs on the event loop of its parent it does nothing.
    """

    __slots__ = ("_at", "_call", "_process", "_timers")  #: loop only

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._process = fork.process_id
        self._timers = TimerPair()
        self._at = math.inf

    def set(self, when: float) -> None:
        """Call the function by this time."""
        now = monotonic()
        # An overdue timer may never fire: the clock of the program's event loop may be frozen.
        if when < self._at or self._at < now:
            first, former = min(when, self._at), self._timers
            # This may be interrupted at any line: cancel the old timers last.
            self._timers, self._at = self._timers_after(max(0.0, first - now)), first
            former.cancel()

    def _timers_after(self, delay: float) -> TimerPair:
        timers, after = TimerPair(), asyncio.get_running_loop().call_later
        timers.handles.append(after(delay + AGAIN, self._fire, timers, context=Context()))
        timers.handles.append(after(delay, self._fire, timers, context=Context()))
        return timers

    def _fire(self, timers: TimerPair) -> None:
        if self._process != fork.process_id:
            return
        if self._timers is timers:
            self._at = math.inf
        self._call()
        timers.cancel()


async def sleep(seconds: float) -> None:
    """Pause the running task, even if the timer that ends the pause is lost."""
    if seconds <= 0:
        await asyncio.sleep(0)
    else:
        await wait(asyncio.get_running_loop().create_future(), seconds)


async def wait(ready: asyncio.Future[None], seconds: float) -> None:
    """Wait for a future; set its result after ``seconds`` if nothing else has.

    There are two timers: an exception from outside may be raised just before the event loop calls
    the first.
    """
    after = asyncio.get_running_loop().call_later
    ends = (seconds, seconds + AGAIN) if seconds < UNLIMITED else ()
    timers = [after(end, finish, ready, context=Context()) for end in ends]
    try:
        await ready
    finally:
        for timer in timers:
            timer.cancel()


def finish(ready: asyncio.Future[None]) -> None:
    """Set the result of a future, unless it is done."""
    if not ready.done():
        settle(ready, None)
