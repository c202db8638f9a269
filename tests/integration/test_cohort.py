"""Waiters of one process hand off a lock to each other, almost without requests."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
import time

import pytest
from support.fronts import LEGACY, do
from support.interruptions import Interrupted, Interruption
from support.leftovers import ASYNCIO, BLOCKING, PATIENCE, TIDY_FRONTS, lasting, until
from support.workers import take_turns

from redis_lock_decorators import LockError, LockLostError, redis_lock

FRONTS = TIDY_FRONTS

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy_queue")


def cohort_lock(front, server, name, **options):
    options = {"expire": 2.5, "acquire_time": PATIENCE, "wait": "cohort", **options}
    return front.package.RedisLock(name, client=front.client(server), **options)


async def waited_for(front, lease, count):
    """Wait until the cohort of a lease has ``count`` waiters."""
    await until(front, lambda: len(lease._claim.cohort._waiting) >= count)


def comes_now(lease):
    """Treat a lease as acquired just now, however long the others took to join."""
    lease._claim.cohort.since = time.monotonic()


def scripts_run(direct):
    """The number of scripts that clients have run."""
    return direct.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


class Crowd:
    """Waiters for one lock, with the order in which they entered and their leases."""

    def __init__(self, front, hold=0.0):
        self.front, self.hold = front, hold
        self.entered, self.identifiers, self.inside = [], [], 0

    async def enter(self, lock, number):
        async with self.front.held(lock) as lease:
            self.inside += 1
            assert self.inside == 1
            assert lease.remaining() > 0
            self.entered.append(number)
            self.identifiers.append(lease.identifier)
            try:
                await self.front.sleep(self.hold)
            finally:
                self.inside -= 1

    def one(self, lock, number):
        return lambda: self.enter(lock, number)

    async def in_order(self, lock, lease, count, then=None):
        """Start waiters one by one behind a held lease, then release it."""

        def come(number):
            async def coming():
                await waited_for(self.front, lease, number)
                await self.enter(lock, number)

            return coming

        async def release_keys():
            await waited_for(self.front, lease, count)
            if then is not None:
                await then()
            comes_now(lease)
            await do(lease.release())

        return await self.front.elsewhere(*map(come, range(count)), release_keys)


async def test_thirty_waiters_enter_in_order_by_one_release(front, server, direct, name):
    lock, crowd = cohort_lock(front, server, name), Crowd(front)
    lease = await do(lock.acquire())
    before = scripts_run(direct)

    results = await crowd.in_order(lock, lease, 30)

    assert results == [None] * 31
    assert crowd.entered == list(range(30))
    assert scripts_run(direct) - before < 10  # hardly a renewal is due
    assert lasting(direct, f"*{name}*") == []


async def test_two_processes_alternate_and_exclude_each_other(front, server, direct, name):
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    children = [
        context.Process(
            target=take_turns, args=(server.port, name, 40, front.name, theirs), daemon=True
        )
        for _, theirs in pipes
    ]

    for child in children:
        child.start()
    for ours, _ in pipes:
        assert ours.poll(60)
        ours.recv()
    for ours, _ in pipes:
        ours.send("go")
    (most, one, failed), (most_too, other, failed_too) = [
        ours.recv() for ours, _ in pipes if ours.poll(60)
    ]
    for child in children:
        child.join()
    direct.delete(f"inside:{name}", f"came:{name}")

    assert (most, most_too) == (1, 1)
    assert failed == failed_too == []
    assert one[0] < other[-1]
    assert other[0] < one[-1]


async def test_lease_that_is_handed_off_is_renewed(front, server, name):
    reported = []
    lock = cohort_lock(
        front, server, name, expire=0.9, on_lost=lambda *client_state: reported.append(client_state)
    )
    crowd, lease = Crowd(front, hold=1.2), await do(lock.acquire())
    identifier = lease.identifier
    started = time.monotonic()

    results = await crowd.in_order(lock, lease, 2)

    assert results == [None] * 3
    assert time.monotonic() - started > 2 * 0.9
    assert crowd.identifiers[0] == identifier
    assert reported == []


async def test_short_holds_continue_for_longer_than_a_lease(front, server, name):
    lock, crowd = cohort_lock(front, server, name, expire=0.5), Crowd(front, hold=0.05)
    lease = await do(lock.acquire())

    results = await crowd.in_order(lock, lease, 30)

    assert results == [None] * 31
    assert crowd.entered == list(range(30))
    assert len(set(crowd.identifiers)) < 30


async def test_member_without_renewal_has_a_whole_lease(front, server, name):
    lock = cohort_lock(front, server, name, expire=2, auto_renew=False)
    left = []

    async def enter():
        async with front.held(lock) as lease:
            left.append(lease.remaining())
            await front.sleep(0.3)

    results = await front.elsewhere(*[enter] * 4)

    assert results == [None] * 4
    assert min(left) > 1.5


async def test_loss_of_a_deleted_lock_is_reported_and_others_continue(front, server, direct, name):
    lock = cohort_lock(front, server, name, expire=0.9, cancel_on_lost=False)
    crowd, lease, lost = Crowd(front), await do(lock.acquire()), []
    identifier = lease.identifier

    async def lose():
        async with front.held(lock) as next_member:
            assert next_member.identifier == identifier
            direct.delete(next_member.key)
            await until(front, lambda: next_member.lost)
            lost.append(next_member)

    def come(number):
        async def coming():
            await waited_for(front, lease, 1)
            await crowd.enter(lock, number)

        return coming

    async def release_keys():
        await waited_for(front, lease, 4)
        comes_now(lease)
        await do(lease.release())

    results = await front.elsewhere(lose, *map(come, range(3)), release_keys)

    assert isinstance(results[0], LockLostError)
    assert results[1:] == [None] * 4
    assert len(lost) == 1
    assert sorted(crowd.entered) == [0, 1, 2]
    assert identifier not in crowd.identifiers


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
        assert time.monotonic() - started < 15  # one lost turn would cost 2.5 s or more

    ASYNCIO.run(test())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
async def test_error_in_the_block_hands_off_the_lock(front, server, direct, name, error):
    lock, crowd = cohort_lock(front, server, name), Crowd(front)
    lease = await do(lock.acquire())
    before = scripts_run(direct)

    async def fail():
        with contextlib.suppress(error):
            async with front.held(lock):
                raise error

    async def enter():
        await waited_for(front, lease, 1)
        await crowd.enter(lock, 1)

    async def release_keys():
        await waited_for(front, lease, 2)
        comes_now(lease)
        await do(lease.release())

    results = await front.elsewhere(fail, enter, release_keys)

    assert results == [None] * 3
    assert crowd.entered == [1]
    assert scripts_run(direct) - before < 4  # each would ask for itself, and release


def busy_or(cohort, interruption=None):
    """Wait until a cohort has a waiter, or one was interrupted before."""

    end = time.monotonic() + PATIENCE
    while cohort.is_idle() and not (interruption and interruption.happened):
        assert time.monotonic() < end
        time.sleep(0.0005)


# Interrupted between its making and its first step, a coroutine is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("place", ["leader", "next_member"])
def test_waiter_interrupted_at_any_line_leaves_no_keys_and_delays_no_waiter(
    server, direct, name, place
):
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
        lease = (lock if place == "next_member" else external).acquire()
        assert lease is not None, f"a turn was lost after {interruption.location}"
        served.clear()
        victim = threading.Thread(target=interrupted, args=(interruption,))
        other = threading.Thread(target=enter)
        cohort = lock._config.port().cohort(lease._claim.keys[0], lease._claim.expire_ms)
        victim.start()
        busy_or(cohort, interruption)
        other.start()
        busy_or(cohort)
        lease.release()
        victim.join()
        other.join()
        inside.clear()
        assert served, f"the other did not enter after {interruption.location}"
        assert lasting(direct, f"*{name}*") == [], interruption.location
        if not interruption.happened:
            break

    assert 50 < number < 999


# Interrupted between its making and its first step, a coroutine is never awaited.
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
        assert lease is not None, f"a turn was lost before line {number}"
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


async def test_all_wait_strategies_and_external_clients_exclude_each_other(
    front, server, direct, name
):
    counted = []
    ways = ["cohort", "queue", "poll"]
    locks = [cohort_lock(front, server, name, wait=way, expire=5) for way in ways]

    def count():
        before = len(counted)
        assert direct.set(f"inside:{name}", "1", nx=True)
        return before

    def leave(before):
        direct.delete(f"inside:{name}")
        counted.append(before)

    def enters(lock):
        async def enter():
            for _ in range(6):
                async with front.held(lock):
                    before = count()
                    await front.sleep(0.001)
                    leave(before)

        return enter

    def strange():
        external = client.lock(f"sys:lock:{name}", timeout=5, sleep=0.003, thread_local=False)
        for _ in range(4):
            assert external.acquire()
            try:
                leave(count())
            finally:
                external.release()

    client, thread = server.client(), threading.Thread(target=strange)
    thread.start()
    results = await front.elsewhere(*[enters(lock) for lock in locks for _ in range(3)])
    await until(front, lambda: not thread.is_alive())
    client.close()

    assert results == [None] * 9
    assert counted == list(range(9 * 6 + 4))


async def test_holder_does_not_wait_for_itself(front, server, name):
    lock = cohort_lock(front, server, name)

    async with front.held(lock):
        with pytest.raises(LockError, match="wait for itself"):
            await do(lock.acquire(1))

    async with front.held(lock):  # nor is anything left of it
        pass


async def test_several_names_are_polled(front, server, direct, name):
    names = [f"{{{name}}}:{letter}" for letter in "ab"]
    lock, crowd = cohort_lock(front, server, names), Crowd(front, hold=0.005)

    results = await front.elsewhere(*[crowd.one(lock, number) for number in range(5)])

    assert results == [None] * 5
    assert sorted(crowd.entered) == list(range(5))
    assert len(set(crowd.identifiers)) == 5
    assert direct.pubsub_channels() == []


async def test_decorated_functions_of_either_kind_hand_off_the_lock(front, server, direct, name):
    lock = redis_lock(
        name, client=front.client(server), wait="cohort", acquire_time=PATIENCE, expire=2.5
    )
    inside, done = [], []

    def enter():
        assert not inside
        inside.append(1)

    def leave(number):
        inside.clear()
        done.append(number)
        return number

    if front is BLOCKING:

        @lock
        def call(number):
            enter()
            time.sleep(0.002)
            return leave(number)

    else:

        @lock
        async def call(number):
            enter()
            await asyncio.sleep(0.002)
            return leave(number)

    await do(call(-1))
    before = scripts_run(direct)

    def calling(number):
        async def work():
            return await do(call(number))

        return work

    results = await front.elsewhere(*map(calling, range(10)))

    assert results == list(range(10))
    assert sorted(done) == list(range(-1, 10))
    assert scripts_run(direct) - before < 2 * 10
