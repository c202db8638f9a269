"""Members of a cohort that are interrupted or cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from support.cohort_crowds import Crowd, cohort_lock, waited_for
from support.fronts import LEGACY
from support.interruptions import Interrupted, Interruption
from support.leftovers import ASYNCIO, BLOCKING, PATIENCE, lasting

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy_queue")


@asyncio_only
def test_cancelled_tasks_leave_no_keys_and_delay_no_waiter(server, direct, name):
    async def test():
        lock, crowd = cohort_lock(ASYNCIO, server, name), Crowd(ASYNCIO, hold=0.001)
        started = time.monotonic()
        for pause in [0.0003 * step for step in range(40)]:
            works = [asyncio.ensure_future(crowd.enter(lock, number)) for number in range(6)]
            await asyncio.sleep(pause)
            for work in works[::2]:
                work.cancel()
            results = await asyncio.gather(*works, return_exceptions=True)
            assert results[1::2] == [None] * 3
            assert all(one is None or isinstance(one, asyncio.CancelledError) for one in results)
            assert lasting(direct, f"*{name}*") == []
        assert time.monotonic() - started < 15  # a lost grant would cost 2.5 s or more

    ASYNCIO.run(test())


def wait_for_a_waiter(cohort, interruption=None):
    """Wait until a cohort has a waiter, unless the waiter was interrupted before."""

    end = time.monotonic() + PATIENCE
    while cohort.is_idle() and not (interruption and interruption.happened):
        assert time.monotonic() < end
        time.sleep(0.0005)


# A coroutine that is interrupted before its first step is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("position", ["leader", "next_member"])
def test_interrupted_waiter_leaves_no_keys_and_delays_no_waiter(server, direct, name, position):
    lock = cohort_lock(BLOCKING, server, name, expire=8, acquire_time=5)
    external = cohort_lock(BLOCKING, server, name, expire=8, acquire_time=5)
    inside, served = [], []

    def enter():
        with lock:
            inside.append(1)
            assert inside == [1]
            inside.clear()
        served.append(1)

    def interrupted(interruption):
        with contextlib.suppress(Interrupted), interruption:
            enter()

    for number in range(1_000):
        interruption = Interruption(number)
        lease = (lock if position == "next_member" else external).acquire()
        assert lease is not None, f"a grant was lost after {interruption.location}"
        served.clear()
        victim = threading.Thread(target=interrupted, args=(interruption,))
        other = threading.Thread(target=enter)
        cohort = lock._config.port().cohort(lease._claim.keys[0], lease._claim.expire_ms)
        victim.start()
        wait_for_a_waiter(cohort, interruption)
        other.start()
        wait_for_a_waiter(cohort)
        lease.release()
        victim.join()
        other.join()
        inside.clear()
        assert served, f"the other waiter did not enter after {interruption.location}"
        assert lasting(direct, f"*{name}*") == [], interruption.location
        if not interruption.happened:
            break

    assert 50 < number < 999


# A coroutine that is interrupted before its first step is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_release_interrupted_at_any_line_can_be_called_again(server, direct, name):
    lock = cohort_lock(BLOCKING, server, name, expire=8, acquire_time=5)
    inside, most = [], []

    def enter():
        with lock:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.001)
            inside.pop()

    for number in range(1_000):
        interruption, lease = Interruption(number), lock.acquire()
        assert lease is not None, f"a grant was lost before line {number}"
        cohort = lease._claim.cohort
        others = [threading.Thread(target=enter) for _ in range(2)]
        for other in others:
            other.start()
        BLOCKING.run(waited_for(BLOCKING, lease, 2))
        with contextlib.suppress(Interrupted), interruption:
            lease.release()
        lease.release()
        for other in others:
            other.join()
        assert max(most) == 1, interruption.location
        assert len(most) == 2 * (number + 1), interruption.location
        assert cohort.is_idle(), interruption.location
        assert lasting(direct, f"*{name}*") == [], interruption.location
        if not interruption.happened:
            break

    assert 10 < number < 999
