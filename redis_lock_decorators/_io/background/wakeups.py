"""Who waits for news: a thread, or a task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.background import timers
from redis_lock_decorators._io.background.hubs import are_only_pauses_green
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.interruptions import RELEASED, is_from_python

#: The longest single wait: eventlet cannot wait for as long as Python's own locks.
LONGEST = 86_400.0
#: Seconds between two looks for news where waiting for them would stop all greenlets.
LOOK = 0.005


class Gate:
    """One thread waits until another opens it; then it is closed again."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let who waits, or waits next, go on; from any thread."""
        try:
            if self._lock.locked():
                self._lock.release()
        except RuntimeError as error:
            if not is_from_python(error, RELEASED):  # by another, which has opened it
                raise

    def wait(self, seconds: float) -> None:
        """Wait until it is opened, for so many seconds at most."""
        if seconds > LONGEST:
            seconds = LONGEST
        self._lock.acquire(timeout=seconds if seconds > 0 else 0.0)


class ThreadWakeup:
    """A thread that waits holds a lock, no connection; news come from any thread.

    Args:
        begin: called before each wait: has those who will tell the news begin, if they have not.
    """

    __slots__ = ("_begin", "_gate", "_news")

    def __init__(self, begin: Callable[[], object]) -> None:
        self._news: deque[Signal] = deque()
        self._gate = Gate()
        self._begin = begin

    def notify(self, signal: Signal) -> None:
        self._news.append(signal)
        self._gate.open()

    async def wait(self, seconds: float) -> Signal | None:
        end = monotonic() + seconds
        while not self._news and (left := end - monotonic()) > 0:
            self._begin()
            if are_only_pauses_green():
                time.sleep(min(left, LOOK))
            else:
                self._gate.wait(left)
        return self._news.popleft() if self._news else None


class TaskWakeup:
    """A task that waits; news come from its own event loop."""

    __slots__ = ("_future", "_news")

    def __init__(self) -> None:
        self._news: deque[Signal] = deque()
        self._future: asyncio.Future[None] | None = None

    def notify(self, signal: Signal) -> None:
        self._news.append(signal)
        if self._future is not None:
            timers.finish(self._future)

    async def wait(self, seconds: float) -> Signal | None:
        if not self._news:
            self._future = asyncio.get_running_loop().create_future()
            await timers.wait(self._future, seconds)
        return self._news.popleft() if self._news else None
