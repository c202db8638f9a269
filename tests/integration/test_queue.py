"""Waiters of a busy lock join a queue: they are notified, do not poll, and leave no keys."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
from support.crowds import Crowd, all_served, held_for_a_crowd
from support.fronts import LEGACY, do
from support.leftovers import (
    ASYNCIO,
    BLOCKING,
    PATIENCE,
    TIDY_FRONTS,
    connections,
    lasting,
    own_threads,
    until,
)
from support.queues import queue_of, queued
from support.workers import Rival

from redis_lock_decorators import ConfigurationError, _lua
from redis_lock_decorators._rules.keys import companion, with_queue

FRONTS = TIDY_FRONTS
asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy_queue")


async def test_waiters_enter_in_order_of_arrival(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server))
    lease = await do(lock.acquire())
    crowd, next_number = Crowd(front, lock), [0]

    def arriving(number):
        async def arrive():
            await until(front, lambda: next_number[0] == number)
            return await crowd.enter(number)

        return arrive

    async def release_keys():
        for number in range(8):
            next_number[0] = number
            await queued(front, direct, name, number + 1)
        await do(lease.release())

    results = await front.elsewhere(*map(arriving, range(8)), release_keys)

    assert results[:8] == [True] * 8
    assert crowd.entered == list(range(8))


def test_processes_enter_in_order_of_arrival(server, direct, name):
    lease = BLOCKING.package.RedisLock(name, client=server.client()).acquire()
    rivals = [Rival() for _ in range(5)]

    for number, rival in enumerate(rivals):
        rival.wants(server, name)
        BLOCKING.run(queued(BLOCKING, direct, name, number + 1))
    lease.release()
    entered = [rival.entered() for rival in rivals]
    for rival in rivals:
        rival.end()

    assert entered == sorted(entered)


async def test_waiters_send_hardly_any_commands(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server))
    lease = await do(lock.acquire())
    sent = []

    async def release_keys():
        await queued(front, direct, name, 20)
        await front.sleep(0.2)
        before = direct.info("stats")["total_commands_processed"]
        await front.sleep(1.0)
        sent.append(direct.info("stats")["total_commands_processed"] - before)
        await do(lease.release())

    await all_served(front, lock, release_keys, 20)

    assert sent[0] < 30


async def test_hand_off_costs_one_release(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server))

    def count(command):
        return direct.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    lease = await do(lock.acquire())
    counts = []

    async def release_keys():
        await queued(front, direct, name, 20)
        counts.append(count("evalsha"))
        await do(lease.release())

    await all_served(front, lock, release_keys, 20)

    assert count("evalsha") - counts[0] < 21 + 10  # including an occasional recheck


async def test_no_keys_are_left_after_contention(front, server, direct, name):
    client = front.client(server)
    lock = front.package.RedisLock(name, client=client)
    async with front.held(lock):
        known = connections(direct)

    await held_for_a_crowd(front, direct, lock, name)

    assert lasting(direct, f"*{name}*") == []
    await until(front, lambda: not own_threads(), lambda: f"threads are left: {own_threads()}")
    await until(front, lambda: direct.pubsub_channels() == [])
    idle = 8 if front is BLOCKING else 0  # the pool of the client, one for each thread
    assert len(connections(direct) - known) <= idle


async def test_no_other_keys_without_contention(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server))

    lease = await do(lock.acquire())

    assert direct.keys(f"*{name}*") == [f"sys:lock:{name}".encode()]
    assert direct.pubsub_channels() == []
    await do(lease.release())


@pytest.mark.parametrize("acquire_time", [0.05, 0.3, 1.2])
async def test_wait_lasts_for_acquire_time(front, server, direct, name, acquire_time):
    client = front.client(server)
    lock = front.package.RedisLock(name, client=client)
    lease = await do(lock.acquire())
    waited = []

    async def wait():
        started = time.monotonic()
        assert await do(lock.acquire(acquire_time)) is None
        waited.append(time.monotonic() - started)

    results = await front.elsewhere(*[wait] * 10)

    assert results == [None] * 10
    assert min(waited) >= acquire_time - 0.005
    assert max(waited) < acquire_time + 1.0
    assert direct.zcard(queue_of(name)) == 0
    await do(lease.release())


async def test_waiters_that_timed_out_delay_no_waiter(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    impatient, patient = Crowd(front, lock, 0.2), Crowd(front, lock)
    lease = await do(lock.acquire())
    released = []

    async def release_keys():
        await queued(front, direct, name, 1)
        await front.sleep(0.6)
        released.append(time.monotonic())
        await do(lease.release())

    mixed = zip(impatient.waiters(5), patient.waiters(5), strict=True)
    results = await front.elsewhere(*itertools.chain(*mixed), release_keys)

    assert results[:10] == [False, True] * 5
    assert time.monotonic() - released[0] < 2.0  # less than one grant


@asyncio_only
def test_waiters_cancelled_at_any_moment_leave_no_keys_and_delay_no_waiter(server, direct, name):
    async def test():
        lock = ASYNCIO.package.RedisLock(
            name, acquire_time=PATIENCE, expire=30, client=ASYNCIO.client(server)
        )
        inside = []

        async def enter():
            async with lock as lease:
                assert not inside
                inside.append(lease)
                try:
                    await asyncio.sleep(0.001)
                finally:
                    inside.clear()

        started = time.monotonic()
        for pause in [0.0002 * step for step in range(60)]:
            works = [asyncio.ensure_future(enter()) for _ in range(6)]
            await asyncio.sleep(pause)
            for work in works[::2]:
                work.cancel()
            results = await asyncio.gather(*works, return_exceptions=True)
            assert results[1::2] == [None] * 3

        assert time.monotonic() - started < 15  # a lost grant would cost 2.5 s each time
        assert lasting(direct, f"*{name}*") == []

    ASYNCIO.run(test())


@pytest.mark.parametrize("wait", ["queues", "", None, True, 1, b"queue"])
async def test_unknown_wait_strategy_is_refused(front, server, name, wait):
    with pytest.raises(ConfigurationError, match="wait="):
        front.package.RedisLock(name, client=front.client(server), wait=wait)


async def test_lock_can_be_polled(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), wait="poll")
    lease = await do(lock.acquire())
    seen = []

    async def release_keys():
        await front.sleep(0.2)
        seen.extend([direct.keys(f"*{name}*"), direct.pubsub_channels()])
        await do(lease.release())

    await all_served(front, lock, release_keys)

    assert seen == [[lease.key.encode()], []]


async def test_fences_grow_with_each_hand_off(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), fencing=True)
    first = await do(lock.acquire())
    fences = [first.fence]

    async def enter():
        lease = await do(lock.acquire(PATIENCE))
        fences.append(lease.fence)
        await do(lease.release())

    async def release_keys():
        await queued(front, direct, name, 5)
        await do(first.release())

    results = await front.elsewhere(*[enter] * 5, release_keys)

    direct.delete(companion(f"sys:lock:{name}".encode(), b"fence"))
    assert results == [None] * 6
    assert len(set(fences)) == 6
    assert fences == sorted(fences)


def test_fifty_threads_share_one_lock_object(server, direct, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client())
    counted = []

    def work():
        for _ in range(4):
            with lock:
                before = len(counted)
                time.sleep(0)
                counted.append(before)

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counted == list(range(200))


async def test_waiters_for_several_locks_enter_despite_a_queue(front, server, direct, name):
    client = front.client(server)
    one = front.package.RedisLock(f"{name}:a", client=client)
    both = front.package.RedisLock([f"{name}:a", f"{name}:b"], client=client)
    singles, pairs = Crowd(front, one), Crowd(front, both)
    lease = await do(one.acquire())

    async def release_keys():
        await queued(front, direct, f"{name}:a", 4)
        await do(lease.release())

    results = await front.elsewhere(*singles.waiters(4), *pairs.waiters(2), release_keys)

    assert results == [True] * 6 + [None]


def test_late_copy_of_a_join_does_not_expire_an_endless_lock(direct, name):
    keys = with_queue((f"sys:lock:{name}".encode(),))
    direct.set(keys[0], "mine")

    details = ("mine", 1, 10_000, "channel", 2500, 0, "")
    reply = direct.eval(_lua.script("enqueue").text, 3, *keys, *details)

    assert reply == b"mine:1"
    assert direct.pttl(keys[0]) == -1
    direct.delete(keys[0])
