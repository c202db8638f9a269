"""Tasks on a double: event loops in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

pytest.importorskip("redis.asyncio")

from redis_lock_decorators import LockLostError, LockTimeoutError, redis_lock
from redis_lock_decorators.asyncio import RedisLock
from redis_lock_decorators.testing.fake import FakeServer

HOUR = 3600.0
pytestmark = pytest.mark.timeout(20)


@redis_lock("order:{order_id}")
async def ship(order_id: int) -> int:
    await asyncio.sleep(60)
    return order_id


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_functions_decorated_at_import_are_served_in_turn(double: FakeServer) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(ship(1), ship(1), ship(2))

    before = double.now
    with pytest.raises(LockTimeoutError):  # a minute is longer than acquire_time
        run(main())
    assert double.now - before == pytest.approx(10, abs=2)


def test_waiting_and_holding_for_an_hour_take_no_time(double: FakeServer) -> None:
    async def main() -> None:
        double.keep_busy("report")
        with pytest.raises(LockTimeoutError):
            await RedisLock("report", acquire_time=HOUR).__aenter__()
        async with RedisLock("other") as lease:
            await asyncio.sleep(HOUR)
            lease.check()

    before = double.now
    run(main())
    assert double.now - before == pytest.approx(2 * HOUR, abs=10)


def test_shorter_limit_of_the_program_ends_a_wait(double: FakeServer) -> None:
    async def main() -> None:
        double.keep_busy("report")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(RedisLock("report", acquire_time=HOUR).acquire(), 60)

    before = double.now
    run(main())
    assert double.now - before == pytest.approx(60, abs=5)


def test_lost_lease_cancels_its_task(double: FakeServer) -> None:
    reached = []

    async def main() -> None:
        with pytest.raises(LockLostError):
            async with RedisLock("report"):
                double.lose("report")
                await asyncio.sleep(HOUR)
                reached.append("the end of the body")

    run(main())
    assert reached == []


def test_stalled_renewal_loses_a_lease(double: FakeServer) -> None:
    async def main() -> None:
        with pytest.raises(LockLostError):
            async with RedisLock("report", expire=10):
                double.stall_renewals(60)
                await asyncio.sleep(HOUR)

    run(main())


def test_locking_can_be_turned_off(double: FakeServer) -> None:
    async def main() -> None:
        double.turn_off()
        async with RedisLock("report", acquire_time=0), RedisLock("report", acquire_time=0):
            pass

    run(main())


def test_threads_and_tasks_exclude_each_other(double: FakeServer) -> None:
    from redis_lock_decorators import RedisLock as BlockingLock

    async def main() -> float:
        lock = RedisLock("report", acquire_time=HOUR)

        def work() -> None:
            with BlockingLock("report", acquire_time=HOUR):
                double.sleep(60)

        async with lock:
            working = asyncio.ensure_future(asyncio.to_thread(work))
            await asyncio.sleep(60)
        await working
        return double.now

    before = double.now
    assert run(main()) - before == pytest.approx(120, abs=10)


def test_event_loop_returns_to_real_time_after_the_double() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with FakeServer():
            async with RedisLock("report"):
                await asyncio.sleep(HOUR)
        assert abs(loop.time() - type(loop).time(loop)) < 1
        await asyncio.sleep(0.001)

    run(main())


def test_other_event_loops_remain_in_real_time(double: FakeServer) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        double.keep_busy("report")
        assert await RedisLock("report", acquire_time=0.01).acquire() is None
        async with RedisLock("other") as lease:
            lease.check()

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
