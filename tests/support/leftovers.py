"""Whether anything is left once no lock is held: a thread, a connection, a key, a task."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from redis.exceptions import ResponseError

from redis_lock_decorators._lua import NOTED
from support.fronts import LEGACY, AsyncioFront, BlockingFront

#: Seconds that anything may take that must happen, on a machine that is busy.
PATIENCE = 20.0
THREADS = "redis_lock_decorators"


class TidyBlockingFront(BlockingFront):
    """Threads and blocking clients, also of a cluster."""

    def cluster(self, place: Any, **options: Any) -> Any:
        """A client of the cluster that has a node at ``place``."""
        from redis.cluster import RedisCluster

        return RedisCluster(host=place.host, port=place.port, **options)


class TidyAsyncioFront(AsyncioFront):
    """Tasks and asyncio clients; no task may be left at the end of a test."""

    def cluster(self, place: Any, **options: Any) -> Any:
        """A client of the cluster that has a node at ``place``, closed at the end of the test."""
        from redis.asyncio.cluster import RedisCluster

        self._opened.append(RedisCluster(host=place.host, port=place.port, **options))
        return self._opened[-1]

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def tidy() -> None:
            await test
            await until(self, lambda: not other_tasks(), lambda: f"tasks are left: {other_tasks()}")

        super().run(tidy())


BLOCKING, ASYNCIO = TidyBlockingFront(), TidyAsyncioFront()
TIDY_FRONTS = [BLOCKING] if LEGACY else [BLOCKING, ASYNCIO]


async def until(
    front: Any, is_so: Callable[[], object], problem: Callable[[], str] = lambda: "it never came"
) -> None:
    """Wait until something is so, for ``PATIENCE`` at most."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, problem()
        await front.sleep(0.01)


def own_threads() -> list[str]:
    """The names of the package's threads that run."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith(THREADS))


def other_tasks() -> set[asyncio.Task[Any]]:
    """The tasks of the running event loop but this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def connections(client: Any) -> set[str]:
    """The connections that a server has, by its numbers for them."""
    return {str(one["id"]) for one in client.client_list()}


def lasting(client: Any, pattern: str) -> list[bytes]:
    """The keys but the notes of who released a lock that others waited for."""
    return [key for key in client.keys(pattern) if not is_note(client, key)]


def is_note(client: Any, key: bytes) -> bool:
    """Whether this is such a note, which ends by itself within half a minute."""
    if not key.endswith(b"~:released"):
        return False
    try:
        left = client.pttl(key)
    except ResponseError:  # it is another node's, which is asked too
        return True
    return bool(left != -1 and left <= NOTED)


@contextlib.contextmanager
def none_left(client: Any, keys: str = "sys:lock:*") -> Iterator[None]:
    """Fail if at the end there is a thread of the package, or a connection or key that is new.

    ``client`` is one of the server's that is used for nothing else.
    """
    client.ping()
    connected, known = connections(client), set(lasting(client, keys))
    yield
    end = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        left = {
            "threads": own_threads(),
            "connections": connections(client) - connected,
            "keys": set(lasting(client, keys)) - known,
        }
        if not any(left.values()):
            return
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.02)
