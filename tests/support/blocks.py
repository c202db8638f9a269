"""Calls and blocks of a lock in separate threads or tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from support.fronts import do


def make(front: Any, server: Any, name: str, **options: Any) -> Any:
    """A lock on a name, with its own client."""
    return front.package.RedisLock(name, client=front.client(server), **options)


async def elsewhere(front: Any, work: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Return the result of a call in a separate thread or task, which ends first."""

    async def call() -> Any:
        return await do(work())

    (result,) = await front.elsewhere(call)
    return result


async def enter(front: Any, lock: Any) -> Any:
    """Enter a block in a separate thread or task."""
    return await elsewhere(front, getattr(lock, "__enter__", None) or lock.__aenter__)


async def leave(front: Any, lock: Any) -> Any:
    """Leave a block in a separate thread or task; return what the exit raises."""
    end = getattr(lock, "__exit__", None) or lock.__aexit__
    return await elsewhere(front, lambda: end(None, None, None))


async def acquire_elsewhere(front: Any, lock: Any, **options: Any) -> Any:
    """Return the result of ``acquire`` in a separate thread or task."""
    return await elsewhere(front, lambda: lock.acquire(**options))
