"""The cancellation by a loss is told from those of others."""

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
    """The last of errors that were raised one while another was handled."""
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
def test_what_came_of_the_cancellation_by_a_loss_is_known(error: object, is_ours: bool) -> None:
    assert is_from_loss(error) is is_ours


def test_cancellation_that_comes_while_that_by_a_loss_is_handled_is_anothers() -> None:
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


def test_cancellation_by_a_loss_is_known_after_an_awaited_task() -> None:
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
    raise AssertionError("it was not cancelled")


def test_a_task_is_cancelled_once_and_not_by_itself() -> None:
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


def test_a_task_that_is_gone_is_nobody() -> None:
    async def test() -> None:
        task = asyncio.ensure_future(asyncio.sleep(0))
        holder = BlockTask(weakref.ref(task))
        await task
        holder.cancel()
        assert not holder.uncancel(asyncio.CancelledError(LOST))

    asyncio.run(test())
    assert running() is None


def begin_at_once(work: Coroutine[Any, Any, Any]) -> None:
    """Run the first step of a task now, as an eager task factory does; it is the last one too."""
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


def test_loss_that_a_task_finds_which_the_holder_runs_leaves_nothing_behind() -> None:
    """Before Python 3.13, a task that is cancelled in its own step stays so."""

    async def finds(holder: BlockTask) -> None:
        holder.cancel()

    async def works() -> int:
        own = running()
        assert own is not None
        holder = BlockTask(own)
        begin_at_once(finds(holder))
        assert not holder.uncancel(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 1

    async def test() -> None:
        assert await asyncio.ensure_future(works()) == 1

    asyncio.run(test())


def test_loss_that_a_task_finds_which_the_holder_runs_cancels_the_holder() -> None:
    async def finds(holder: BlockTask) -> None:
        holder.cancel()

    async def works() -> bool:
        own = running()
        assert own is not None
        holder = BlockTask(own)
        begin_at_once(finds(holder))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            return holder.uncancel(error)
        return False

    async def test() -> None:
        assert await asyncio.ensure_future(works())

    asyncio.run(test())
