"""The blocking and the asyncio front of the package behind one interface.

So each behaviour is tested by one function. ``await do(x)`` gives the result of a call: directly
in blocking code, awaited in asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import redis

import redis_lock_decorators
import redis_lock_decorators.asyncio
import redis_lock_decorators.lock
from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.blocking_port import run


async def do(value: Any) -> Any:
    """The value, or the result of awaiting it."""
    return await value if inspect.isawaitable(value) else value


def wrap(client: Any) -> None:
    """Wrap a client as a tracer does, so that its ``execute_command`` is used."""
    execute = client.execute_command
    if inspect.iscoroutinefunction(execute):

        async def traced(*args: Any, **options: Any) -> Any:
            return await execute(*args, **options)

    else:

        def traced(*args: Any, **options: Any) -> Any:
            return execute(*args, **options)

    client.execute_command = traced


class TestTime:
    """The clock of the tests: real time, or that of a double."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.monotonic
        self.sleep: Callable[[float], None] = time.sleep

    def unix(self) -> float:
        """Unix time in seconds."""
        return time.time() + self.now() - time.monotonic()

    @contextmanager
    def of(self, double: Any) -> Iterator[None]:
        """Use the time of a double."""
        former = self.now, self.sleep
        self.now, self.sleep = lambda: double.now, double.sleep
        try:
            yield
        finally:
            self.now, self.sleep = former


TIME = TestTime()


class BlockingFront:
    """Threads and blocking clients."""

    name = "blocking"
    package = redis_lock_decorators

    def connection(self, topology: Any) -> Any:
        """A client of this front's kind."""
        return topology.client()

    def client(self, place: Any, **options: Any) -> Any:
        """A client of the server or proxy at ``place``."""
        return redis.Redis(host=place.host, port=place.port, **options)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        run(test)

    @asynccontextmanager
    async def held(self, lock: Any) -> Any:
        """``with lock``."""
        with lock as lease:
            yield lease

    async def sleep(self, seconds: float) -> None:
        TIME.sleep(seconds)

    async def elsewhere(self, *works: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The results of functions that run concurrently, each in its own thread.

        An exception is returned as a result.
        """
        results: list[Any] = [None] * len(works)

        def work(place: int) -> None:
            try:
                results[place] = run(works[place]())  # type: ignore[arg-type]
            except BaseException as error:
                results[place] = error

        threads = [threading.Thread(target=work, args=(place,)) for place in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class AsyncioFront:
    """Tasks and asyncio clients."""

    name = "asyncio"
    package = redis_lock_decorators.asyncio

    def __init__(self) -> None:
        self._opened: list[Any] = []

    def connection(self, topology: Any) -> Any:
        """A client of this front's kind, closed at the end of the test."""
        self._opened.append(topology.async_client())
        return self._opened[-1]

    def client(self, place: Any, **options: Any) -> Any:
        """A client of the server or proxy at ``place``, closed at the end of the test."""
        from redis.asyncio import Redis

        self._opened.append(Redis(host=place.host, port=place.port, **options))
        return self._opened[-1]

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def closing() -> None:
            try:
                await test
            finally:
                # A renewal in progress would reopen a closed client.
                await asyncio.wait_for(
                    asyncio.gather(*background_tasks().tasks(), return_exceptions=True), 10
                )
                while self._opened:
                    await self._opened.pop().aclose()
                await asyncio.sleep(0.01)  # until closing connections are closed

        asyncio.run(closing())

    @asynccontextmanager
    async def held(self, lock: Any) -> Any:
        """``async with lock``."""
        async with lock as lease:
            yield lease

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def elsewhere(self, *works: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The results of functions that run concurrently, each in its own task."""
        running = [asyncio.ensure_future(work()) for work in works]
        return await asyncio.gather(*running, return_exceptions=True)


#: redis-py 3.5 has no asyncio.
LEGACY = int(redis.__version__.partition(".")[0]) < 4
if not LEGACY:
    import redis_lock_decorators.asyncio.lock
FRONTS = [BlockingFront()] if LEGACY else [BlockingFront(), AsyncioFront()]
