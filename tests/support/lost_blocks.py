"""Blocks whose losses cancel their tasks, without locks."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from redis_lock_decorators.asyncio._cancellation import BlockTask

LONG = 60.0


def is_of_the_loss(
    body: Callable[[], Awaitable[None]], lose: Callable[[BlockTask, Any], Awaitable[None]]
) -> bool:
    """Whether a block takes the error of its body for that of its loss.

    ``lose`` is called with what cancels the task of the block by the loss, and with the task.
    """

    async def hold() -> bool:
        try:
            await body()
        except asyncio.CancelledError as error:
            return block.uncancel(error)
        raise AssertionError("the body worked on")

    async def test() -> bool:
        nonlocal block
        task = asyncio.ensure_future(hold())
        block = BlockTask(weakref.ref(task))
        loss = asyncio.ensure_future(lose(block, task))
        try:
            return await asyncio.wait_for(task, 10)
        finally:
            await loss

    block: Any = None
    return asyncio.run(test())


async def soon(block: BlockTask, task: object) -> None:
    """Lose a block in a moment."""
    await asyncio.sleep(0.02)
    asyncio.get_running_loop().call_soon(block.cancel)
