"""How the loss of a lease ends the task that holds it, and what happens to other cancellations."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from support.cancellations import cancellations, counts_cancellations
from support.fronts import LEGACY
from support.leftovers import ASYNCIO, until
from support.losing import losing

from redis_lock_decorators import LockLostError

pytestmark = [
    pytest.mark.usefixtures("tidy"),
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio"),
]


@pytest.fixture
def lock_of(server):
    """Make a lock whose loss is detected soon, on the event loop of the test."""
    return lambda name, on_lost=None, **options: losing(ASYNCIO, server, name, on_lost, **options)


def test_loss_cancels_the_body_and_the_exit_raises_lock_lost_error(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError):
            async with lock_of(name) as lease:
                direct.delete(lease.key)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cut.append(lease.lost)
                    raise

        assert cut == [True]
        assert cancellations() == 0
        await asyncio.sleep(0.01)  # the task can await again

    cut = []
    ASYNCIO.run(test())


@pytest.mark.parametrize("first", ["outer", "inner"])
@pytest.mark.parametrize("clean_up", ["sleep", "wait_for"])
def test_losses_of_nested_blocks_leave_both_though_the_inner_one_is_caught(
    lock_of, direct, name, first, clean_up
):
    """The second loss cancels the task while it handles the cancellation by the first one."""

    async def test():
        with pytest.raises(LockLostError) as caught:
            async with lock_of(f"{name}:outer") as outer:
                with contextlib.suppress(LockLostError):
                    async with lock_of(f"{name}:inner") as inner:
                        await lose(outer, inner)
                await asyncio.sleep(60)
        assert caught.value.lock_name == f"{name}:outer"
        assert cancellations() == 0

    async def lose(outer, inner):
        one, other = (outer, inner) if first == "outer" else (inner, outer)
        direct.delete(one.key)
        try:
            await asyncio.sleep(60)
        finally:
            direct.delete(other.key)
            if clean_up == "sleep":
                await asyncio.sleep(0.5)
            else:
                await asyncio.wait_for(asyncio.sleep(0.5), 5)

    ASYNCIO.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize("awaits", [asyncio.ensure_future, asyncio.gather], ids=["task", "gather"])
def test_losses_of_nested_blocks_leave_both_though_the_inner_one_is_in_an_awaited_task(
    lock_of, direct, name, awaits
):
    async def item(outer):
        async with lock_of(f"{name}:inner") as inner:
            direct.delete(outer.key)
            try:
                await asyncio.sleep(60)
            finally:
                direct.delete(inner.key)
                await asyncio.sleep(0.5)

    async def test():
        with pytest.raises(LockLostError) as caught:
            async with lock_of(f"{name}:outer") as outer:
                with contextlib.suppress(LockLostError):
                    await awaits(item(outer))
                await asyncio.sleep(60)
        assert caught.value.lock_name == f"{name}:outer"
        assert cancellations() == 0

    ASYNCIO.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize("awaited", ["task", "gather", "shield", "wait_for", "raise"])
def test_loss_is_raised_though_the_cancellation_passes_an_awaitable(lock_of, direct, name, awaited):
    async def work():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise asyncio.CancelledError from None

    awaitables = {
        "task": lambda: asyncio.ensure_future(asyncio.sleep(60)),
        "gather": lambda: asyncio.gather(asyncio.sleep(60), asyncio.sleep(60)),
        "shield": lambda: asyncio.shield(asyncio.sleep(1)),
        "wait_for": lambda: asyncio.wait_for(asyncio.sleep(60), 60),
        "raise": work,
    }

    async def test():
        with pytest.raises(LockLostError):
            async with lock_of(name) as lease:
                direct.delete(lease.key)
                await awaitables[awaited]()

        assert cancellations() == 0

    ASYNCIO.run(test())


def test_body_that_suppresses_the_cancellation_gets_lock_lost_error(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError):
            async with lock_of(name) as lease:
                direct.delete(lease.key)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

        assert cancellations() == 0

    ASYNCIO.run(test())


def test_body_error_is_not_replaced_by_the_loss(lock_of, direct, name):
    async def test():
        with pytest.raises(KeyError):
            async with lock_of(name) as lease:
                direct.delete(lease.key)
                try:
                    await asyncio.sleep(60)
                finally:
                    raise KeyError("of the body")

        assert cancellations() == 0

    ASYNCIO.run(test())


def test_body_is_not_cancelled_without_cancel_on_lost(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError):
            async with lock_of(name, cancel_on_lost=False) as lease:
                direct.delete(lease.key)
                await until(ASYNCIO, lambda: lease.lost)
                await asyncio.sleep(0.3)
                done.append(True)

        assert cancellations() == 0

    done = []
    ASYNCIO.run(test())
    assert done


def test_task_that_entered_no_block_is_not_cancelled(lock_of, direct, name):
    async def test():
        lock = lock_of(name)
        lease = await lock.acquire()  # but no block is entered
        direct.delete(lease.key)
        await until(ASYNCIO, lambda: lease.lost)
        await asyncio.sleep(0.2)

        assert cancellations() == 0
        with pytest.raises(LockLostError):
            await lease.release()

    ASYNCIO.run(test())


def test_other_cancellation_releases_the_lock_and_propagates(lock_of, direct, name):
    async def work():
        async with lock_of(name):
            inside.set()
            await asyncio.sleep(60)

    async def test():
        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert not direct.exists(f"sys:lock:{name}")

    inside = asyncio.Event()
    ASYNCIO.run(test())


@counts_cancellations
def test_other_cancellation_after_that_by_the_loss_propagates(lock_of, direct, name):
    async def work():
        task = asyncio.current_task()
        async with lock_of(name, lambda *_: task.cancel()) as lease:
            direct.delete(lease.key)
            await asyncio.sleep(60)

    async def test():
        task = asyncio.ensure_future(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    ASYNCIO.run(test())


@counts_cancellations
def test_loss_is_raised_though_the_block_ignored_another_cancellation(lock_of, direct, name):
    async def work():
        task = asyncio.current_task()
        async with lock_of(name) as lease:
            direct.delete(lease.key)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)

    async def test():
        task = asyncio.ensure_future(work())
        with pytest.raises(LockLostError):
            await task
        assert task.cancelling() == 1

    ASYNCIO.run(test())


@counts_cancellations
@pytest.mark.parametrize("lost_too", [False, True])
def test_timeout_around_the_block_stays_a_timeout(lock_of, direct, name, lost_too):
    async def test():
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60) as limit:
                on_lost = (lambda *_: expire(limit)) if lost_too else None
                async with lock_of(name, on_lost) as lease:
                    if lost_too:
                        direct.delete(lease.key)
                    else:
                        limit.reschedule(loop.time() + 0.1)
                    await asyncio.sleep(60)

        assert cancellations() == 0
        assert not direct.exists(f"sys:lock:{name}")

    def expire(limit):
        limit.reschedule(asyncio.get_running_loop().time() - 1)
        limit._on_timeout()  # immediately, before the task runs again

    ASYNCIO.run(test())


@counts_cancellations
def test_loss_within_a_timeout_is_not_a_timeout(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError):
            async with asyncio.timeout(60), lock_of(name) as lease:
                direct.delete(lease.key)
                await asyncio.sleep(60)

        assert cancellations() == 0

    ASYNCIO.run(test())


@counts_cancellations
def test_failing_task_group_cancels_the_holder_and_reports_the_failure(lock_of, direct, name):
    async def hold():
        async with lock_of(name):
            inside.set()
            await asyncio.sleep(60)

    async def fail():
        await inside.wait()
        raise KeyError("raised by another task")

    async def test():
        with pytest.raises(BaseException, match="unhandled") as caught:
            async with asyncio.TaskGroup() as group:
                holder = group.create_task(hold())
                group.create_task(fail())

        assert [type(error) for error in caught.value.exceptions] == [KeyError]
        assert holder.cancelled()
        assert not direct.exists(f"sys:lock:{name}")

    inside = asyncio.Event()
    ASYNCIO.run(test())


@counts_cancellations
def test_loss_within_a_task_group_ends_the_group(lock_of, direct, name):
    async def hold():
        async with lock_of(name) as lease:
            direct.delete(lease.key)
            await asyncio.sleep(60)

    async def test():
        with pytest.raises(BaseException, match="unhandled") as caught:
            async with asyncio.TaskGroup() as group:
                holder = group.create_task(hold())
                sibling = group.create_task(asyncio.sleep(60))

        assert [type(error) for error in caught.value.exceptions] == [LockLostError]
        assert sibling.cancelled()
        assert holder.cancelling() == 0

    ASYNCIO.run(test())


def test_loss_of_the_inner_lock_leaves_the_outer_held(lock_of, direct, name):
    async def test():
        async with lock_of(f"{name}:outer") as outer:
            with pytest.raises(LockLostError, match="inner"):
                async with lock_of(f"{name}:inner") as inner:
                    direct.delete(inner.key)
                    await asyncio.sleep(60)
            assert cancellations() == 0
            await asyncio.sleep(0.7)
            assert await outer.owned()

    ASYNCIO.run(test())


def test_loss_of_the_outer_lock_ends_the_inner_block(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError, match="outer"):
            async with lock_of(f"{name}:outer") as outer, lock_of(f"{name}:inner"):
                direct.delete(outer.key)
                await asyncio.sleep(60)

        assert not direct.exists(f"sys:lock:{name}:inner")
        assert cancellations() == 0

    ASYNCIO.run(test())


def test_loss_of_both_locks_is_not_a_cancellation(lock_of, direct, name):
    async def test():
        with pytest.raises(LockLostError):
            async with lock_of(f"{name}:outer") as outer, lock_of(f"{name}:inner") as inner:
                direct.delete(outer.key, inner.key)
                await asyncio.sleep(60)

        assert cancellations() == 0
        await asyncio.sleep(0.01)

    ASYNCIO.run(test())
