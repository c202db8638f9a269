"""The cancellation by a loss beside those of a ``TaskGroup``, whose errors may replace it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import pytest
from support.lost_blocks import LONG, is_of_the_loss, soon

from redis_lock_decorators.asyncio._cancellation import BlockTask

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no TaskGroup")


async def fail(after: int = 0) -> None:
    for _ in range(after):
        await asyncio.sleep(0)
    raise KeyError("raised by a task of the group")


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
