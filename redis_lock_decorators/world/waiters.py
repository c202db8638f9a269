"""Who waits for news: a thread, or a task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

from redis_lock_decorators.flow.turn import News


class ThreadWaiter:
    """A thread that waits holds a lock, no connection; news come from any thread."""

    __slots__ = ("_gate", "_news")

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._gate = threading.Lock()
        self._gate.acquire()

    def tell(self, news: News) -> None:
        self._news.append(news)
        try:
            self._gate.release()
        except RuntimeError:  # it is open
            return

    async def wait(self, seconds: float) -> News | None:
        end = time.monotonic() + seconds
        while not self._news and (left := end - time.monotonic()) > 0:
            self._gate.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._news.popleft() if self._news else None


class TaskWaiter:
    """A task that waits; news come from its own event loop."""

    __slots__ = ("_future", "_news")

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._future: asyncio.Future[None] | None = None

    def tell(self, news: News) -> None:
        self._news.append(news)
        if self._future is not None:
            _wake(self._future)

    async def wait(self, seconds: float) -> News | None:
        if not self._news:
            loop = asyncio.get_running_loop()
            self._future = ready = loop.create_future()
            timer = loop.call_later(min(seconds, threading.TIMEOUT_MAX), _wake, ready)
            try:
                await ready
            finally:
                timer.cancel()
        return self._news.popleft() if self._news else None


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
