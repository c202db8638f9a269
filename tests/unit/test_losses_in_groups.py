"""The cancellation by a loss beside those of a ``TaskGroup``, whose errors may replace it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redis_lock_decorators.asyncio._cancellation import BlockTask

LONG = 60.0

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no TaskGroup")


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


async def fail(after: int = 0) -> None:
    for _ in range(after):
        await asyncio.sleep(0)
    raise KeyError("raised by a task of the group")


async def soon(block: BlockTask, task: object) -> None:
    await asyncio.sleep(0.02)
    asyncio.get_running_loop().call_soon(block.cancel)


async def cleans_up() -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        await asyncio.sleep(0.05)


async def ends_a_group() -> None:
    async with asyncio.TaskGroup() as inner:
        inner.create_task(cleans_up())


@pytest.mark.parametrize("after", range(12))
def test_cancellation_beside_that_of_a_group_is_taken_back(after: int) -> None:
    """A task of the group fails some iterations of the event loop after, or before, the loss."""

    async def body() -> None:
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(after))
        await asyncio.sleep(LONG)

    async def lose(block: BlockTask, task: object) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(block.cancel)

    assert is_of_the_loss(body, lose)


@pytest.mark.parametrize("clean_up", [cleans_up, ends_a_group])
def test_cancellation_of_a_group_that_has_failed_and_cleans_up_is_repeated(clean_up: Any) -> None:
    """The group has no tasks left, and raises their errors in place of the cancellation."""

    async def body() -> None:
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await clean_up()
        await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


def test_cancellation_of_a_group_in_an_exit_stack_is_repeated() -> None:
    async def body() -> None:
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with contextlib.AsyncExitStack() as stack:
                group = await stack.enter_async_context(asyncio.TaskGroup())
                group.create_task(fail())
                await cleans_up()
        await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


def test_cancellation_by_others_is_left_though_a_group_has_cancelled_its_body() -> None:
    """The group has taken its own cancellation back, and waits for a slow task."""

    async def body() -> None:
        try:
            with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
                async with asyncio.TaskGroup() as group:
                    group.create_task(cleans_up())
                    group.create_task(fail())
                    await asyncio.sleep(LONG)
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(LONG)

    async def lose(block: BlockTask, task: Any) -> None:
        await soon(block, task)
        await asyncio.sleep(0.3)
        task.cancel()

    assert not is_of_the_loss(body, lose)
