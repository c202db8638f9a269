"""The locks that are compared. Each peer makes locks for one process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

#: The lease of every lock, in seconds.
EXPIRE = 10
#: Longer than any wait, in seconds.
PATIENCE = 120
#: Connections that a pool may open: more than it needs.
MANY = 1000
#: Makes a new lock, a context manager, each time.
NewLock = Callable[[], Any]


@dataclass(frozen=True)
class Peer:
    """A kind of lock.

    Attributes:
        package: the module that must be installed.
        threads, tasks: take a port and a lock's name, and return a factory of such locks for
            threads or for asyncio; None if the package has none.
    """

    title: str
    package: str
    threads: Callable[[int, str], NewLock] | None = None
    tasks: Callable[[int, str], NewLock] | None = None

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def ours(wait: str, port: int, name: str) -> NewLock:
    import redis

    from redis_lock_decorators import RedisLock

    client = redis.Redis(port=port)
    return lambda: RedisLock(name, client=client, expire=EXPIRE, acquire_time=PATIENCE, wait=wait)


def our_tasks(wait: str, port: int, name: str) -> NewLock:
    import redis.asyncio

    from redis_lock_decorators.asyncio import RedisLock

    client = redis.asyncio.Redis(port=port)
    return lambda: RedisLock(name, client=client, expire=EXPIRE, acquire_time=PATIENCE, wait=wait)


def redis_py(sleep: float, port: int, name: str) -> NewLock:
    import redis

    client = redis.Redis(port=port, max_connections=MANY)
    return lambda: client.lock(name, timeout=EXPIRE, sleep=sleep)


def redis_py_tasks(sleep: float, port: int, name: str) -> NewLock:
    import redis.asyncio

    client = redis.asyncio.Redis(port=port, max_connections=MANY)
    return lambda: client.lock(name, timeout=EXPIRE, sleep=sleep)


def python_redis_lock(port: int, name: str) -> NewLock:
    import redis
    import redis_lock

    # It blocks in BLPOP for the length of its lease: longer than the socket timeout of redis-py 8.
    client = redis.Redis(port=port, max_connections=MANY, socket_timeout=None)
    return lambda: redis_lock.Lock(client, name, expire=EXPIRE)


def pottery(port: int, name: str) -> NewLock:
    import pottery
    import redis

    client = redis.Redis(port=port, max_connections=MANY)
    return lambda: pottery.Redlock(key=name, masters={client}, auto_release_time=EXPIRE)


OURS = Peer(
    "redis_lock_decorators",
    "redis_lock_decorators",
    partial(ours, "queue"),
    partial(our_tasks, "queue"),
)
COHORT = Peer(
    "the same, wait='cohort'",
    "redis_lock_decorators",
    partial(ours, "cohort"),
    partial(our_tasks, "cohort"),
)
REDIS_PY = Peer("redis-py", "redis", partial(redis_py, 0.1), partial(redis_py_tasks, 0.1))
IMPATIENT = Peer(
    "redis-py, sleep=0.005", "redis", partial(redis_py, 0.005), partial(redis_py_tasks, 0.005)
)
POTTERY = Peer("pottery.Redlock", "pottery", pottery)
BLPOP = Peer("python-redis-lock", "redis_lock", python_redis_lock)
PEERS = (OURS, COHORT, BLPOP, REDIS_PY, IMPATIENT, POTTERY)
