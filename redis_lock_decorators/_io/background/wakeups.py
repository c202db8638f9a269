"""How a thread or a task waits for signals about its lock, and how it is woken."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.background import timers
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._rules.interruptions import RELEASED, is_from_python

#: The longest single wait in seconds: eventlet has a lower limit than Python's locks.
LONGEST = 86_400.0


class Gate:
    """An event for one waiting thread, which resets itself when the wait ends."""

    __slots__ = ("_lock",)  #: any thread

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """End the current or the next wait; from any thread."""
        try:
            if self._lock.locked():
                self._lock.release()
        except RuntimeError as error:
            if not is_from_python(error, RELEASED):  # another thread has opened it
                raise

    def wait(self, seconds: float) -> None:
        """Wait until it is opened, at most for ``seconds``."""
        if seconds > LONGEST:
            seconds = LONGEST
        self._lock.acquire(timeout=seconds if seconds > 0 else 0.0)


class ThreadWakeup:
    """A waiting thread, which needs no connection; signals arrive from any thread.

    Args:
        begin: called before each wait: starts the background thread if it does not run.
    """

    __slots__ = ("_begin", "_gate", "_signals")

    def __init__(self, begin: Callable[[], object]) -> None:
        #: any thread
        self._signals: deque[Signal] = deque()
        self._gate = Gate()

        self._begin = begin

    def notify(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._gate.open()

    async def wait(self, seconds: float) -> Signal | None:
        end = monotonic() + seconds
        while not self._signals and (left := end - monotonic()) > 0:
            self._begin()
            self._gate.wait(left)
        return self._signals.popleft() if self._signals else None


class TaskWakeup:
    """A waiting task.

    Signals arrive from its own event loop, or from a thread that closes a coroutine of that loop.
    """

    __slots__ = ("_future", "_signals")

    def __init__(self) -> None:
        #: any thread
        self._signals: deque[Signal] = deque()
        self._future: asyncio.Future[None] | None = None

    def notify(self, signal: Signal) -> None:
        self._signals.append(signal)
        future = self._future
        if future is None or future.done():
            return
        loop = future.get_loop()
        if is_running_here(loop):
            timers.finish(future)
        else:
            call_on(loop, timers.finish, future)

    async def wait(self, seconds: float) -> Signal | None:
        if not self._signals:
            self._future = future = asyncio.get_running_loop().create_future()
            if not self._signals:  # else another thread has added one that it could not wake for
                await timers.wait(future, seconds)
        return self._signals.popleft() if self._signals else None
