"""What the tests' other processes do; importable, so that they can be spawned."""

from __future__ import annotations

import time
from typing import Any

import redis

from redis_lock_decorators import RedisLock


def hold_until_killed(port: int, name: str, inside: Any) -> None:
    with RedisLock(name, client=redis.Redis(port=port), expire=0.5):
        inside.set()
        time.sleep(60)


def count_up(port: int, name: str, times: int) -> None:
    client = redis.Redis(port=port)
    for _ in range(times):
        with RedisLock(name, client=client, acquire_time=60, delta=0.002):
            seen = int(client.get(f"count:{name}") or 0)
            client.set(f"count:{name}", seen + 1)
