"""A lock is released though a signal handler raises between the call of its exit and its await.

The tests do what an ``async with`` statement does then: they look up both methods, await the first,
call the second, and drop the coroutine and the method.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio as aioredis
from support.leftovers import ASYNCIO, until

from redis_lock_decorators.asyncio import RedisLock
from redis_lock_decorators.asyncio.lock import Lock

FRONTS = [ASYNCIO]
MAKES: dict[str, Callable[[aioredis.Redis, str], Any]] = {
    "lock": lambda client, name: RedisLock(name, client=client, expire=60),
    "lock that is not renewed": lambda client, name: RedisLock(
        name, client=client, auto_renew=False
    ),
    "drop-in": lambda client, name: Lock(client, f"sys:lock:{name}", timeout=60),
    "renewed drop-in": lambda client, name: Lock(client, f"sys:lock:{name}", 60, auto_renew=True),
    "endless drop-in": lambda client, name: Lock(client, f"sys:lock:{name}"),
}
every_lock = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


async def entered(lock: Any) -> Any:
    """Enter a block, and return its exit."""
    enter, leave = lock.__aenter__, lock.__aexit__
    await enter()
    return leave


@every_lock
async def test_lock_is_released_though_its_exit_is_not_awaited(front, make, server, direct, name):
    client = front.client(server)
    leave = await entered(make(client, name))
    gc.disable()
    try:
        left = leave(None, None, None)
        del leave
        assert direct.exists(f"sys:lock:{name}")

        del left

        await until(front, lambda: not direct.exists(f"sys:lock:{name}"))
    finally:
        gc.enable()
    async with make(client, name):
        assert direct.exists(f"sys:lock:{name}")
    assert not direct.exists(f"sys:lock:{name}")


@every_lock
async def test_exit_that_is_cancelled_before_its_first_step(front, make, server, direct, name):
    leave = await entered(make(front.client(server), name))
    task = asyncio.ensure_future(leave(None, None, None))
    del leave
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task

    await until(front, lambda: not direct.exists(f"sys:lock:{name}"))


@every_lock
async def test_block_without_a_call_of_its_exit_keeps_the_lock(front, make, server, direct, name):
    leave = await entered(make(front.client(server), name))
    del leave
    await asyncio.sleep(0.05)

    assert direct.exists(f"sys:lock:{name}")
