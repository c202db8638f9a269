"""A cancellation by a loss is distinguished from other cancellations."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import weakref
from collections.abc import Coroutine
from functools import partial
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


async def failing_group() -> None:
    """Leave a count in ``Task.cancelling()`` before Python 3.13."""

    async def fail() -> None:
        raise KeyError

    async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
        group.create_task(fail())
        group.create_task(asyncio.sleep(60))


async def fail_in_group() -> None:
    with contextlib.suppress(Exception):
        await failing_group()


async def be_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(60)


async def swallow_cancellation() -> None:
    """As programs did before there was ``Task.uncancel``."""
    with contextlib.suppress(asyncio.CancelledError):
        await be_cancelled()


async def handle_cancellation() -> None:
    """Clean up after a cancellation by other code, until the loss."""
    try:
        await be_cancelled()
    finally:
        await asyncio.sleep(60)


async def handle_cancellation_and_error() -> None:
    """Clean up after an error of a clean-up, until the loss."""
    try:
        try:
            await be_cancelled()
        finally:
            raise KeyError
    finally:
        await asyncio.sleep(60)


async def clean_up_after_group() -> None:
    """Handle the error of a ``TaskGroup``, until the loss."""
    try:
        await failing_group()
    finally:
        await asyncio.sleep(60)


def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


def nothing(task: asyncio.Task[Any]) -> None:
    """No other cancellation."""


async def in_task() -> None:
    await asyncio.ensure_future(asyncio.sleep(60))


async def in_gather() -> None:
    await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no Task.cancelling")
@pytest.mark.parametrize(
    ("before", "work", "just_before", "after", "is_ours"),
    [
        (fail_in_group, None, nothing, nothing, True),
        (swallow_cancellation, None, nothing, nothing, True),
        (None, clean_up_after_group, nothing, nothing, True),
        (fail_in_group, in_task, nothing, nothing, True),
        (fail_in_group, in_gather, nothing, nothing, True),
        (fail_in_group, None, cancel, nothing, False),
        (fail_in_group, None, nothing, cancel, False),
        (fail_in_group, in_task, cancel, nothing, False),
        (fail_in_group, in_gather, cancel, nothing, False),
        (swallow_cancellation, in_task, nothing, cancel, False),
        (fail_in_group, handle_cancellation, nothing, nothing, False),
        (fail_in_group, handle_cancellation_and_error, nothing, nothing, False),
    ],
)
def test_cancellations_that_the_block_has_handled_do_not_hide_a_loss(
    before: Any, work: Any, just_before: Any, after: Any, is_ours: bool
) -> None:
    async def block(entered: list[BlockTask]) -> bool:
        own = running()
        assert own is not None
        holder = BlockTask(own)
        if before is not None:
            await before()
        entered.append(holder)
        try:
            await (work or partial(asyncio.sleep, 60))()
        except asyncio.CancelledError as error:
            return holder.uncancel(error)
        raise AssertionError("the task was not cancelled")

    async def test() -> bool:
        entered: list[BlockTask] = []
        task = asyncio.ensure_future(block(entered))
        while not entered:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(just_before, task)
        asyncio.get_running_loop().call_soon(entered[0].cancel)
        asyncio.get_running_loop().call_soon(after, task)
        return await task

    assert asyncio.run(test()) is is_ours
