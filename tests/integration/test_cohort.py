"""Waiters of one process hand off a lock to each other, almost without requests."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
import time

import pytest
from support.cohort_crowds import Crowd, cohort_lock, restart_lease, waited_for
from support.fronts import do
from support.leftovers import BLOCKING, PATIENCE, TIDY_FRONTS, lasting, until
from support.workers import take_turns

from redis_lock_decorators import LockError, LockLostError, redis_lock

FRONTS = TIDY_FRONTS


pytestmark = pytest.mark.usefixtures("tidy_queue")


def scripts_run(direct):
    """The number of scripts that clients have run."""
    return direct.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


async def test_thirty_waiters_enter_in_order_by_one_release(front, server, direct, name):
    lock, crowd = cohort_lock(front, server, name), Crowd(front)
    lease = await do(lock.acquire())
    before = scripts_run(direct)

    results = await crowd.in_order(lock, lease, 30)

    assert results == [None] * 31
    assert crowd.entered == list(range(30))
    assert scripts_run(direct) - before < 10  # hardly any renewal is due
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
        front, server, name, expire=0.9, on_lost=lambda *report: reported.append(report)
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

    def arrive(number):
        async def work():
            await waited_for(front, lease, 1)
            await crowd.enter(lock, number)

        return work

    async def release_keys():
        await waited_for(front, lease, 4)
        restart_lease(lease)
        await do(lease.release())

    results = await front.elsewhere(lose, *map(arrive, range(3)), release_keys)

    assert isinstance(results[0], LockLostError)
    assert results[1:] == [None] * 4
    assert len(lost) == 1
    assert sorted(crowd.entered) == [0, 1, 2]
    assert identifier not in crowd.identifiers


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
        restart_lease(lease)
        await do(lease.release())

    results = await front.elsewhere(fail, enter, release_keys)

    assert results == [None] * 3
    assert crowd.entered == [1]
    # Without the hand-off, each would send an acquisition and a release.
    assert scripts_run(direct) - before < 4


async def test_all_wait_strategies_and_external_clients_exclude_each_other(
    front, server, direct, name
):
    counted = []
    strategies = ["cohort", "queue", "poll"]
    locks = [cohort_lock(front, server, name, wait=wait, expire=5) for wait in strategies]

    def count():
        before = len(counted)
        assert direct.set(f"inside:{name}", "1", nx=True)
        return before

    def leave(before):
        direct.delete(f"inside:{name}")
        counted.append(before)

    def entering(lock):
        async def enter():
            for _ in range(6):
                async with front.held(lock):
                    before = count()
                    await front.sleep(0.001)
                    leave(before)

        return enter

    def use_externally():
        external = client.lock(f"sys:lock:{name}", timeout=5, sleep=0.003, thread_local=False)
        for _ in range(4):
            assert external.acquire()
            try:
                leave(count())
            finally:
                external.release()

    client, thread = server.client(), threading.Thread(target=use_externally)
    thread.start()
    results = await front.elsewhere(*[entering(lock) for lock in locks for _ in range(3)])
    await until(front, lambda: not thread.is_alive())
    client.close()

    assert results == [None] * 9
    assert counted == list(range(9 * 6 + 4))


async def test_holder_does_not_wait_for_itself(front, server, name):
    lock = cohort_lock(front, server, name)

    async with front.held(lock):
        with pytest.raises(LockError, match="wait for itself"):
            await do(lock.acquire(1))

    async with front.held(lock):  # the refused attempt has left nothing
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
