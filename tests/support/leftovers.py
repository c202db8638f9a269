"""Checks that nothing is left once no lock is held: no thread, connection, key or task."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from redis.exceptions import ResponseError

from redis_lock_decorators._lua import COMPANION_TTL, RECORD_TTL
from support.fronts import LEGACY, AsyncioFront, BlockingFront

#: Seconds within which anything expected must happen, on a busy machine.
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
    front: Any,
    is_so: Callable[[], object],
    problem: Callable[[], str] = lambda: "the condition did not become true",
) -> None:
    """Wait until a condition is true, for ``PATIENCE`` seconds at most."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, problem()
        await front.sleep(0.01)


def own_threads() -> list[str]:
    """The names of the package's running threads."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith(THREADS))


def other_tasks() -> set[asyncio.Task[Any]]:
    """The other tasks of the running event loop."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def connections(client: Any) -> set[str]:
    """The client ids of a server's connections."""
    return {str(one["id"]) for one in client.client_list()}


def lasting(client: Any, pattern: str) -> list[bytes]:
    """The keys, without the records of releases and waiters."""
    return [key for key in client.keys(pattern) if not is_note(client, key)]


def is_note(client: Any, key: bytes) -> bool:
    """Whether a key is a record that expires on its own within a minute (decision 0038).

    Records of waiters remain for that time after the lease of a lock has expired.
    """
    if not key.endswith((b"~:released", b"~:waiters")):
        return False
    try:
        left = client.pttl(key)
    except ResponseError:  # the key belongs to another node, which is checked too
        return True
    return bool(
        left != -1 and left <= (RECORD_TTL if key.endswith(b"~:released") else COMPANION_TTL)
    )


@contextlib.contextmanager
def none_left(client: Any, keys: str = "sys:lock:*") -> Iterator[None]:
    """Fail if a thread of the package, a new connection or a new key remains at the end.

    ``client`` is a client of the server that is used for nothing else. Threads of earlier tests,
    one of which may have left a lease, do not count.
    """
    client.ping()
    earlier = Counter(own_threads())
    connected, known = connections(client), set(lasting(client, keys))
    yield
    end = time.monotonic() + PATIENCE
    while True:
        with warnings.catch_warnings():  # about what others left; the counts below are stricter
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        left = {
            "threads": sorted((Counter(own_threads()) - earlier).elements()),
            "connections": connections(client) - connected,
            "keys": set(lasting(client, keys)) - known,
        }
        if not any(left.values()):
            return
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.02)
