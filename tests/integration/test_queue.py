"""Waiters of a busy lock join a queue: each is notified, none polls, no keys are left."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time

import pytest
import redis
from support.fronts import LEGACY, do, wrap
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
from support.topologies import started
from support.workers import Rival, in_child

from redis_lock_decorators import ConfigurationError, _lua
from redis_lock_decorators._rules.keys import companion, with_queue

FRONTS = TIDY_FRONTS

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy_queue")


class Crowd:
    """Waiters of one process at one lock, and the order in which they entered."""

    def __init__(self, front, lock, acquire_time=PATIENCE):
        self.front, self.lock, self.acquire_time = front, lock, acquire_time
        self.entered, self.inside, self.most = [], 0, 0

    async def enter(self, number):
        """Enter once; returns whether that was in time."""
        lease = await do(self.lock.acquire(self.acquire_time))
        if lease is None:
            return False
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.append(number)
        await self.front.sleep(0)
        self.inside -= 1
        await do(lease.release())
        return True

    def waiters(self, count):
        return [lambda number=number: self.enter(number) for number in range(count)]


async def all_served(front, lock, others, count=5, **options):
    """Run ``count`` waiters for a lock while ``others`` runs; each enters, one at a time."""
    crowd = Crowd(front, lock, **options)
    results = await front.elsewhere(*crowd.waiters(count), others)
    assert results[:count] == [True] * count, results
    assert not isinstance(results[-1], BaseException), results[-1]
    assert crowd.most == 1
    return crowd


async def held_for_a_crowd(front, direct, lock, name, count=5, **options):
    """Run waiters for a lock that is held until all of them have joined its queue."""
    lease = await do(lock.acquire())

    async def release_keys():
        await queued(front, direct, name, count)
        await do(lease.release())

    return await all_served(front, lock, release_keys, count, **options)


async def test_waiters_enter_in_order_of_arrival(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server))
    lease = await do(lock.acquire())
    crowd, comes = Crowd(front, lock), [0]

    def coming(number):
        async def come():
            await until(front, lambda: comes[0] == number)
            return await crowd.enter(number)

        return come

    async def release_keys():
        for number in range(8):
            comes[0] = number
            await queued(front, direct, name, number + 1)
        await do(lease.release())

    results = await front.elsewhere(*map(coming, range(8)), release_keys)

    assert results[:8] == [True] * 8
    assert crowd.entered == list(range(8))


def test_processes_enter_in_order_of_arrival(server, direct, name):
    lease = BLOCKING.package.RedisLock(name, client=server.client()).acquire()
    rivals = [Rival() for _ in range(5)]

    for place, rival in enumerate(rivals):
        rival.wants(server, name)
        BLOCKING.run(queued(BLOCKING, direct, name, place + 1))
    lease.release()
    entered = [rival.entered() for rival in rivals]
    for rival in rivals:
        rival.end()

    assert entered == sorted(entered)


async def test_waiters_send_next_to_nothing(front, server, direct, name):
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

    def count(word):
        return direct.info("commandstats").get(f"cmdstat_{word}", {"calls": 0})["calls"]

    lease = await do(lock.acquire())
    counts = []

    async def release_keys():
        await queued(front, direct, name, 20)
        counts.append(count("evalsha"))
        await do(lease.release())

    await all_served(front, lock, release_keys, 20)

    assert count("evalsha") - counts[0] < 21 + 10  # and now and then a look at the lock


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

        assert time.monotonic() - started < 15  # one lost turn would cost 2.5 s each time
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


OPTIONS = {
    "decoded": {"decode_responses": True},
    "protocol-2": {"protocol": 2},
    "protocol-3": {"protocol": 3},
    "protocol-3-decoded": {"protocol": 3, "decode_responses": True},
    "short-timeout": {"socket_timeout": 0.2},
    "no-timeout": {"socket_timeout": None},
    "named": {"client_name": "a-name"},
    "other-database": {"db": 3},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_clients_of_any_kind_wait(front, server, name, options):
    if LEGACY and "protocol" in options:
        pytest.skip("redis-py 3.5 knows one protocol")
    looking = server.client(db=options.get("db", 0))
    lock = front.package.RedisLock(name, client=front.client(server, **options), expire=3)
    lease = await do(lock.acquire())
    released_at = []

    async def release_keys():
        await queued(front, looking, name, 5)
        await front.sleep(0.6)  # longer than a short timeout
        released_at.append(time.monotonic())
        await do(lease.release())

    await all_served(front, lock, release_keys)

    assert time.monotonic() - released_at[0] < 2.0
    looking.close()


async def test_wrapped_client_waits(front, server, direct, name):
    client = front.client(server)
    wrap(client)

    lock = front.package.RedisLock(name, client=client)

    await held_for_a_crowd(front, direct, lock, name)


@pytest.mark.parametrize("most", [1, 2])
async def test_small_blocking_pool_does_not_delay_the_holder(front, server, direct, name, most):
    module = redis if front is BLOCKING else redis.asyncio
    pool = module.BlockingConnectionPool(host=server.host, port=server.port, max_connections=most)
    client = module.Redis(connection_pool=pool)
    lock = front.package.RedisLock(name, client=client)

    await held_for_a_crowd(front, direct, lock, name, 20)

    await do(pool.disconnect())


@asyncio_only
@pytest.mark.parametrize("most", [1, 2])
def test_tasks_need_one_connection_of_a_pool_that_refuses_more(server, direct, name, most):
    async def test():
        client = ASYNCIO.client(server, max_connections=most)
        lock = ASYNCIO.package.RedisLock(name, client=client)

        await held_for_a_crowd(ASYNCIO, direct, lock, name, 50)

    ASYNCIO.run(test())


@pytest.mark.parametrize("kind", ["cluster", "sentinel", "cluster-decoded"])
async def test_locks_are_handed_off_in_clusters_and_sentinel_sets(front, kind, name):
    if LEGACY and kind == "sentinel":
        pytest.skip("redis-py 3.5 is not tested with Sentinel")
    with started(kind, "embedded") as topology:
        client, looking = front.connection(topology), topology.client()
        locks = [front.package.RedisLock(f"{name}:{n}", client=client) for n in range(3)]
        leases = [await do(lock.acquire()) for lock in locks]
        crowds = [Crowd(front, lock) for lock in locks]

        async def release_keys():
            for place, lease in enumerate(leases):
                await queued(front, looking, f"{name}:{place}", 4)
                await do(lease.release())

        works = [waiter for crowd in crowds for waiter in crowd.waiters(4)]
        results = await front.elsewhere(*works, release_keys)

        assert results == [True] * 12 + [None]
        assert [crowd.most for crowd in crowds] == [1] * 3
        await front.sleep(1.5)
        looking.close()
        if front is BLOCKING:
            client.close()


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


async def test_several_locks_at_once_share_one_channel(front, server, direct, name):
    client = front.client(server)
    locks = [front.package.RedisLock(f"{name}:{n}", client=client) for n in range(5)]
    leases = [await do(lock.acquire()) for lock in locks]
    crowds, channels = [Crowd(front, lock) for lock in locks], []

    async def release_keys():
        for place, lease in enumerate(leases):
            await queued(front, direct, f"{name}:{place}", 4)
            channels.extend(direct.pubsub_channels())
            await do(lease.release())

    works = [waiter for crowd in crowds for waiter in crowd.waiters(4)]
    results = await front.elsewhere(*works, release_keys)

    assert results == [True] * 20 + [None]
    assert [crowd.most for crowd in crowds] == [1] * 5
    assert len(set(channels)) == 1


async def test_waiters_for_several_locks_enter_in_spite_of_a_queue(front, server, direct, name):
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


@asyncio_only
def test_ten_thousand_tasks_wait_over_few_connections(server, direct, name):
    async def test():
        lock = ASYNCIO.package.RedisLock(name, client=ASYNCIO.client(server))
        known, most = connections(direct), []
        lease = await lock.acquire()

        async def release_keys():
            await queued(ASYNCIO, direct, name, 10_000)
            most.append(len(connections(direct) - known))
            await lease.release()

        crowd = await all_served(ASYNCIO, lock, release_keys, 10_000, acquire_time=100)

        assert len(crowd.entered) == 10_000
        assert most[0] <= 9

    ASYNCIO.run(test())


def test_two_hundred_threads_wait_over_few_connections(server, direct, name):
    async def test():
        client, known, most = server.client(), connections(direct), []
        lock = BLOCKING.package.RedisLock(name, client=client, expire=30)
        lease = lock.acquire()

        async def release_keys():
            await queued(BLOCKING, direct, name, 200)
            client.connection_pool.disconnect(inuse_connections=False)
            time.sleep(0.3)
            most.append(len(connections(direct) - known))
            lease.release()

        await all_served(BLOCKING, lock, release_keys, 200)

        assert most[0] < 50

    BLOCKING.run(test())


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_waits_on_its_own_channel(server, direct, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client(), expire=30)
    BLOCKING.run(held_for_a_crowd(BLOCKING, direct, lock, name))
    channels = []

    def work():
        with lock as lease:
            return lease.owned()

    def release_keys():
        BLOCKING.run(queued(BLOCKING, direct, name, 2))
        places = [place.decode() for place in direct.zrange(queue_of(name), 0, -1)]
        channels.extend(place.split("|")[0] for place in places)
        lease.release()

    def wait():
        with lock:
            pass

    lease = lock.acquire()
    ours, looking = threading.Thread(target=wait), threading.Thread(target=release_keys)
    ours.start()
    looking.start()
    child_result = in_child(work)
    ours.join()
    looking.join()

    assert child_result == "True"
    assert len(set(channels)) == 2


def test_late_copy_of_a_join_does_not_expire_an_endless_lock(direct, name):
    keys = with_queue((f"sys:lock:{name}".encode(),))
    direct.set(keys[0], "mine")

    details = ("mine", 1, 10_000, "channel", 2500, 0, "")
    reply = direct.eval(_lua.script("enqueue").text, 3, *keys, *details)

    assert reply == b"mine:1"
    assert direct.pttl(keys[0]) == -1
    direct.delete(keys[0])
