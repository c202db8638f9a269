"""A lock is released even if the stack of its task is exhausted.

The calls that fail are chosen here. At a real limit of recursion, asyncio itself may fail too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio

from redis_lock_decorators import redis_lock
from redis_lock_decorators._flow import redispy_lock
from redis_lock_decorators._io.background import unreleased
from redis_lock_decorators.asyncio import RedisLock, lease, lock
from redis_lock_decorators.asyncio.lock import Lock

#: Acquires a lock of this name, and releases it.
Use = Callable[[redis.asyncio.Redis, str], Awaitable[Any]]


class Failing:
    """A function that raises RecursionError in the first calls, as it has no stack left."""

    def __init__(self, function: Callable[..., Any], calls: int = 1) -> None:
        self.function, self.left = function, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise RecursionError
        return self.function(*args, **kwargs)


async def block(client: redis.asyncio.Redis, name: str) -> None:
    async with RedisLock(name, client=client):
        pass


async def by_hand(client: redis.asyncio.Redis, name: str) -> None:
    held = await RedisLock(name, client=client).acquire(None)
    await held.release()


async def decorated(client: redis.asyncio.Redis, name: str) -> None:
    @redis_lock(name, client=client)
    async def function() -> None:
        pass

    await function()


async def redispy_block(client: redis.asyncio.Redis, name: str) -> None:
    async with client.lock(f"sys:lock:{name}", timeout=30, lock_class=Lock):
        pass


async def redispy_by_hand(client: redis.asyncio.Redis, name: str) -> None:
    held = client.lock(f"sys:lock:{name}", timeout=30, lock_class=Lock)
    await held.acquire()
    await held.release()


@pytest.mark.parametrize("use", [block, by_hand, decorated, redispy_block, redispy_by_hand])
@pytest.mark.parametrize("is_request_possible", [True, False])
def test_lock_is_released_although_its_release_finds_no_stack(
    server: Any, monkeypatch: pytest.MonkeyPatch, name: str, use: Use, is_request_possible: bool
) -> None:
    fails = [(lease, "release"), (redispy_lock, "release")]
    if use not in (by_hand, redispy_by_hand):  # there, the first undoing is that of the event loop
        fails += [(lease, "undo"), (lock, "undo")]
    for module, function in fails:
        monkeypatch.setattr(module, function, Failing(getattr(module, function)))
    if not is_request_possible:
        soon = Failing(unreleased.release_soon, calls=2)
        for module in (lease, lock):
            monkeypatch.setattr(module, "release_soon", soon)

    async def main() -> int:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            with pytest.raises(RecursionError):
                await use(client, name)
            for _ in range(100):
                if not await client.exists(f"sys:lock:{name}"):
                    break
                await asyncio.sleep(0.01)
                if not is_request_possible:
                    await block(client, f"{name} another")
            return int(await client.exists(f"sys:lock:{name}"))

    assert asyncio.run(main()) == 0
