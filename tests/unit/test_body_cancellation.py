"""A cancellation by a loss is distinguished from other cancellations."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators.asyncio._cancellation import LOST, BlockTask, is_from_loss, running


def raised(*errors: BaseException) -> BaseException:
    """The last of several errors, each raised while the one before was handled."""
    for before, error in itertools.pairwise(errors):
        error.__context__ = before
    return errors[-1]


@pytest.mark.parametrize(
    ("error", "is_ours"),
    [
        (asyncio.CancelledError(LOST), True),
        (raised(asyncio.CancelledError(LOST), asyncio.CancelledError()), True),
        (raised(asyncio.CancelledError(LOST), KeyError(), asyncio.CancelledError()), True),
        (asyncio.CancelledError(), False),
        (asyncio.CancelledError("of another"), False),
        (raised(KeyError(LOST), asyncio.CancelledError()), False),
        (None, False),
    ],
    ids=repr,
)
def test_error_that_results_from_a_loss_is_recognised(error: object, is_ours: bool) -> None:
    assert is_from_loss(error) is is_ours


def test_cancellation_while_one_by_a_loss_is_handled_is_external() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(60)

    async def test() -> BaseException:
        task = asyncio.ensure_future(_caught(work()))
        await asyncio.sleep(0)
        task.cancel(LOST)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    error = asyncio.run(test())
    assert isinstance(error.__context__, asyncio.CancelledError)
    assert error.__context__.args == (LOST,)
    assert not is_from_loss(error)


def test_cancellation_by_a_loss_is_recognised_through_an_awaited_task() -> None:
    async def outer() -> None:
        await asyncio.ensure_future(asyncio.sleep(60))

    async def test() -> BaseException:
        task = asyncio.ensure_future(_caught(outer()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel(LOST)
        return await task

    assert is_from_loss(asyncio.run(test()))


async def _caught(work: Coroutine[Any, Any, None]) -> BaseException:
    try:
        await work
    except asyncio.CancelledError as error:
        return error
    raise AssertionError("the task was not cancelled")


def test_task_is_cancelled_once_and_not_by_itself() -> None:
    async def work() -> int:
        own = running()
        assert own is not None
        BlockTask(own).cancel()
        await asyncio.sleep(0)
        return 1

    async def test() -> None:
        assert await asyncio.ensure_future(work()) == 1
        task = asyncio.ensure_future(asyncio.sleep(60))
        holder = BlockTask(weakref.ref(task))
        holder.cancel()
        holder.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert holder.uncancel(caught.value)
        assert not holder.uncancel(caught.value)

    asyncio.run(test())


def test_finished_task_is_not_cancelled() -> None:
    async def test() -> None:
        task = asyncio.ensure_future(asyncio.sleep(0))
        holder = BlockTask(weakref.ref(task))
        await task
        holder.cancel()
        assert not holder.uncancel(asyncio.CancelledError(LOST))

    asyncio.run(test())
    assert running() is None


def run_eagerly(work: Coroutine[Any, Any, Any]) -> None:
    """Run ``work`` as an eager task would: immediately, within the current task."""
    loop, outer = asyncio.get_running_loop(), asyncio.current_task()
    inner = asyncio.Task(asyncio.sleep(0), loop=loop)
    assert outer is not None
    asyncio.tasks._leave_task(loop, outer)
    asyncio.tasks._enter_task(loop, inner)
    try:
        work.send(None)
    except StopIteration:
        pass
    finally:
        asyncio.tasks._leave_task(loop, inner)
        asyncio.tasks._enter_task(loop, outer)


def test_loss_found_by_an_eager_task_leaves_no_cancellation() -> None:
    """Before Python 3.13 a task that cancels itself in its own step remains cancelled."""

    async def report_loss(holder: BlockTask) -> None:
        holder.cancel()

    async def hold() -> int:
        own = running()
        assert own is not None
        holder = BlockTask(own)
        run_eagerly(report_loss(holder))
        assert not holder.uncancel(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 1

    async def test() -> None:
        assert await asyncio.ensure_future(hold()) == 1

    asyncio.run(test())


def test_loss_found_by_an_eager_task_cancels_the_holder() -> None:
    async def report_loss(holder: BlockTask) -> None:
        holder.cancel()

    async def hold() -> bool:
        own = running()
        assert own is not None
        holder = BlockTask(own)
        run_eagerly(report_loss(holder))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            return holder.uncancel(error)
        return False

    async def test() -> None:
        assert await asyncio.ensure_future(hold())

    asyncio.run(test())


@pytest.mark.parametrize("is_bare", [False, True])
def test_cancellation_raised_by_the_handler_of_a_loss_is_by_the_loss(is_bare: bool) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if is_bare:
                raise asyncio.CancelledError from None
            raise asyncio.CancelledError("of the handler")  # noqa: B904

    async def test() -> BaseException:
        task = asyncio.ensure_future(_caught(work()))
        await asyncio.sleep(0)
        task.cancel(LOST)
        return await task

    assert is_from_loss(asyncio.run(test()))
