"""Shielded work of a cancelled task is finished, even if the task that does it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.cancelling import CancellingLoop
from support.releases import Limit
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._io.background import finishing


class Work:
    """Work of three steps that take ``seconds`` together."""

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.done = 0

    async def __call__(self) -> None:
        for _ in range(3):
            await asyncio.sleep(self.seconds / 3)
        self.done += 1


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := timed(VirtualLoop(), monkeypatch))
    loop.close()


def timed(loop: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The event loop; its clock is the clock of shielded work."""
    monkeypatch.setattr(finishing, "monotonic", loop.time)
    return loop


async def shielded(work: Work) -> None:
    await finishing.finish(work)


def test_cancelled_caller_waits_only_as_long_as_it_wants_to(loop: VirtualLoop) -> None:
    work = Work(seconds=10)

    async def main() -> float:
        started = loop.now
        await finishing.finish(work, 1)
        waited = loop.now - started
        await asyncio.sleep(10)
        return waited

    assert loop.run_until_complete(main()) == pytest.approx(1)
    assert work.done == 1


@pytest.mark.parametrize("cancelled", ["all", "worker"])
def test_work_is_done_wherever_tasks_are_cancelled(
    monkeypatch: pytest.MonkeyPatch, cancelled: str
) -> None:
    """Also before the first step of the worker; the caller ends as cancelled after the worker."""
    for iteration in range(1, 100):
        mine: list[Any] = []

        def chosen(found: set[Any], mine: list[Any] = mine) -> list[Any]:
            return [task for task in found if cancelled == "all" or task not in mine]

        loop = timed(CancellingLoop(iteration, chosen), monkeypatch)
        work = Work()

        async def main(work: Work = work, mine: list[Any] = mine) -> None:
            mine.append(asyncio.current_task())
            await shielded(work)

        task = loop.create_task(main())
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        begun = not task.cancelled() or len(mine) == 1
        loop.close()
        assert bool(work.done) == begun
        if loop.iteration < iteration:
            break
    assert iteration > 5


def test_work_is_done_though_its_caller_is_cancelled_repeatedly(loop: VirtualLoop) -> None:
    """As an anyio cancel scope does in each iteration of the event loop."""
    work = Work()
    task = loop.create_task(shielded(work))

    def again() -> None:
        if not task.done():
            task.cancel()
            loop.call_later(0.001, again)

    loop.call_later(0.01, again)
    loop.run_until_complete(asyncio.wait([task]))

    assert work.done == 1
    assert task.cancelled()


def test_cancelled_caller_waits_for_a_round_trip_at_most(loop: VirtualLoop) -> None:
    work = Work(30)
    task = loop.create_task(shielded(work))
    loop.call_later(5, task.cancel)

    loop.run_until_complete(asyncio.wait([task]))
    ended = loop.now
    loop.run_until_complete(asyncio.sleep(60))

    assert task.cancelled()
    assert ended == pytest.approx(1006)
    assert work.done == 1


def test_work_that_is_cancelled_each_time_is_abandoned(loop: VirtualLoop) -> None:
    begun = 0

    async def cancelled() -> None:
        nonlocal begun
        begun += 1
        raise asyncio.CancelledError

    loop.run_until_complete(finishing.finish(cancelled))

    assert begun == finishing.MOST_STARTS


def test_work_is_done_before_the_event_loop_of_a_program_closes() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append(1)

    async def main() -> None:
        caller = asyncio.ensure_future(finishing.finish(work))
        await asyncio.sleep(0)
        assert not caller.done()

    asyncio.run(main())

    assert done


def test_code_that_cancels_all_tasks_does_not_cancel_the_work(loop: VirtualLoop) -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.5)

    async def main() -> None:
        caller = asyncio.ensure_future(finishing.finish(work))
        for _ in range(4):
            await asyncio.sleep(0)
            await cancel_others()
        await asyncio.wait([caller])

    loop.run_until_complete(main())

    assert begun == 1


def test_end_of_a_program_waits_for_work_that_a_cancelled_caller_has_left(
    loop: VirtualLoop,
) -> None:
    work = Work(1.8)

    async def main() -> None:
        caller = asyncio.ensure_future(shielded(work))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert not work.done
        await asyncio.gather(*await cancel_others(), return_exceptions=True)

    loop.run_until_complete(main())

    assert work.done == 1


async def cancel_others() -> set[asyncio.Task[Any]]:
    """Cancel all other tasks, as the end of ``asyncio.run`` does; return them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    return others


@pytest.mark.parametrize("times", [1, 2])
def test_exception_from_outside_is_raised_after_the_work(loop: VirtualLoop, times: int) -> None:
    begun = []

    async def interrupted() -> None:
        begun.append(1)
        await asyncio.sleep(0.1)
        if len(begun) <= times:
            raise Limit

    with pytest.raises(Limit):
        loop.run_until_complete(finishing.finish(interrupted))

    assert len(begun) == 2


def test_error_of_the_work_is_ignored(loop: VirtualLoop) -> None:
    begun = []

    async def failing() -> None:
        begun.append(1)
        raise redis.ConnectionError("gone")

    loop.run_until_complete(finishing.finish(failing))

    assert len(begun) == 1
