"""Who waits for news: a thread, or a task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress

from redis_lock_decorators.flow.turn import News
from redis_lock_decorators.world.timeouts import timeout


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
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> News | None:
        if not self._news:
            self._future = asyncio.get_running_loop().create_future()
            with suppress(asyncio.TimeoutError):
                async with timeout(seconds if seconds < threading.TIMEOUT_MAX else None):
                    await self._future
        return self._news.popleft() if self._news else None
