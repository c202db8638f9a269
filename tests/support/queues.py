"""The queue of a lock, as the server sees it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis_lock_decorators._rules.keys import companion
from support.fronts import do
from support.leftovers import PATIENCE, until


def queue_of(name: str) -> str:
    """The key of the queue."""
    return companion(f"sys:lock:{name}".encode(), b"queue").decode()


async def queued(front: Any, direct: Any, name: str, count: int = 1) -> None:
    """Wait until a lock's queue has this many entries."""
    await until(front, lambda: direct.zcard(queue_of(name)) >= count)


async def entered_while(
    front: Any, lock: Any, work: Callable[[], Awaitable[Any]], count: int = 1, hold: float = 0.0
) -> list[float]:
    """The monotonic times at which ``count`` waiters entered while ``work`` ran."""
    times: list[float] = []
    inside: list[Any] = []

    async def enter() -> None:
        lease = await do(lock.acquire(PATIENCE))
        assert lease is not None
        times.append(time.monotonic())
        assert not inside
        inside.append(lease)
        assert not lease.lost
        await front.sleep(hold)
        inside.clear()
        await do(lease.release())

    results = await front.elsewhere(*[enter] * count, work)
    assert results == [None] * (count + 1), results
    return times
