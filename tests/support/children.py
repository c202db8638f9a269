"""Functions that run in child processes: forked, spawned or started by a fork server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators import RedisLock

_ports: list[int] = []


def prepare(port: int) -> None:
    """Set the server's port."""
    _ports[:] = [port]


def connect() -> redis.Redis:
    """A client, created in the calling process."""
    return redis.Redis(port=_ports[0])


def count_up(port: int, name: str, times: int) -> None:
    """Increment a number ``times`` times by read and write, under a lock."""
    with redis.Redis(port=port) as client:
        for _ in range(times):
            with RedisLock(name, client=client, acquire_time=60):
                seen = int(client.get(f"count:{name}") or 0)
                time.sleep(0.001)
                client.set(f"count:{name}", seen + 1)


def hold_for_long(port: int, name: str, expire: float) -> tuple[int, bool, bool]:
    """Hold a lock for longer than its lease; the number of holders, and whether it was lost."""
    client = redis.Redis(port=port)
    with RedisLock(name, client=client, expire=expire, acquire_time=60) as lease:
        met = int(client.incr(f"inside:{name}"))
        time.sleep(expire * 1.3)
        client.decr(f"inside:{name}")
        return met, lease.lost, lease.owned()


def enter(lock: Any) -> int:
    """Enter the lock; the number of holders."""
    with lock, connect() as client:
        met = int(client.incr("inside"))
        time.sleep(0.005)
        client.decr("inside")
        return met


def exits_by(work: Callable[[], bool]) -> None:
    """Exit with status 0 if the work returns true."""
    sys.exit(0 if work() else 1)
