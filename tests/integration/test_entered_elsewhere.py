"""A loss cancels the task that called ``__aenter__``, even if another task has run it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
import redis.asyncio

from redis_lock_decorators.asyncio import RedisLock
from redis_lock_decorators.errors import LockLostError


def test_loss_cancels_a_body_that_another_task_has_entered(server: Any, name: str) -> None:
    async def main() -> str:
        seen = ""
        async with redis.asyncio.Redis.from_url(server.url) as client:
            lock = RedisLock(name, client=client, expire=0.3)
            with pytest.raises(LockLostError):
                async with contextlib.AsyncExitStack() as stack:
                    await asyncio.create_task(lock.__aenter__())
                    stack.push_async_exit(lock)
                    await client.delete(f"sys:lock:{name}")
                    try:
                        await asyncio.sleep(20)
                        seen = "not cancelled"
                    except asyncio.CancelledError:
                        seen = "cancelled"
                        raise
        return seen

    assert asyncio.run(main()) == "cancelled"


def test_loss_whose_task_has_ended_is_logged(
    server: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        lost = asyncio.Event()
        async with redis.asyncio.Redis.from_url(server.url) as client:
            lock = RedisLock(name, client=client, expire=0.3, on_lost=lambda *_: lost.set())
            with pytest.raises(LockLostError):
                async with contextlib.AsyncExitStack() as stack:
                    await asyncio.create_task(stack.enter_async_context(lock))
                    await client.delete(f"sys:lock:{name}")
                    await asyncio.wait_for(lost.wait(), 20)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())

    assert "no task is cancelled" in caplog.text
