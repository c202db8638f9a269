"""Waiting over clients, pools and topologies of different kinds, with few connections."""

from __future__ import annotations

import os
import threading
import time

import pytest
import redis
from support.crowds import Crowd, all_served, held_for_a_crowd
from support.fronts import LEGACY, do, wrap
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, connections, until
from support.queues import queue_of, queued
from support.topologies import started
from support.workers import in_child

FRONTS = TIDY_FRONTS

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy_queue")


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
        pytest.skip("redis-py 3.5 has one protocol")
    observer = server.client(db=options.get("db", 0))
    lock = front.package.RedisLock(name, client=front.client(server, **options), expire=3)
    lease = await do(lock.acquire())
    released_at = []

    async def release_keys():
        await queued(front, observer, name, 5)
        await front.sleep(0.6)  # longer than a short timeout
        released_at.append(time.monotonic())
        await do(lease.release())

    await all_served(front, lock, release_keys)

    assert time.monotonic() - released_at[0] < 2.0
    observer.close()


async def test_wrapped_client_waits(front, server, direct, name):
    client = front.client(server)
    wrap(client)

    lock = front.package.RedisLock(name, client=client)

    crowd = await held_for_a_crowd(front, direct, lock, name)

    assert len(crowd.entered) == 5


@pytest.mark.parametrize("size", [1, 2])
async def test_small_blocking_pool_does_not_delay_the_holder(front, server, direct, name, size):
    module = redis if front is BLOCKING else redis.asyncio
    pool = module.BlockingConnectionPool(host=server.host, port=server.port, max_connections=size)
    client = module.Redis(connection_pool=pool)
    lock = front.package.RedisLock(name, client=client)

    crowd = await held_for_a_crowd(front, direct, lock, name, 20)
    assert len(crowd.entered) == 20

    await do(pool.disconnect())


@asyncio_only
@pytest.mark.parametrize("size", [1, 2])
def test_tasks_need_one_connection_of_a_pool_that_refuses_more(server, direct, name, size):
    async def test():
        client = ASYNCIO.client(server, max_connections=size)
        lock = ASYNCIO.package.RedisLock(name, client=client)

        crowd = await held_for_a_crowd(ASYNCIO, direct, lock, name, 50)

        assert len(crowd.entered) == 50

    ASYNCIO.run(test())


@pytest.mark.parametrize("kind", ["cluster", "sentinel", "cluster-decoded"])
async def test_locks_are_handed_off_in_clusters_and_sentinel_sets(front, kind, name):
    if LEGACY and kind == "sentinel":
        pytest.skip("redis-py 3.5 is not tested with Sentinel")
    with started(kind, "embedded") as topology:
        client, observer = front.connection(topology), topology.client()
        locks = [front.package.RedisLock(f"{name}:{n}", client=client) for n in range(3)]
        leases = [await do(lock.acquire()) for lock in locks]
        crowds = [Crowd(front, lock) for lock in locks]

        async def release_keys():
            for number, lease in enumerate(leases):
                await queued(front, observer, f"{name}:{number}", 4)
                await do(lease.release())

        works = [waiter for crowd in crowds for waiter in crowd.waiters(4)]
        results = await front.elsewhere(*works, release_keys)

        assert results == [True] * 12 + [None]
        assert [crowd.most for crowd in crowds] == [1] * 3
        await front.sleep(1.5)
        observer.close()
        if front is BLOCKING:
            client.close()


async def test_several_locks_at_once_share_one_channel(front, server, direct, name):
    client = front.client(server)
    locks = [front.package.RedisLock(f"{name}:{n}", client=client) for n in range(5)]
    leases = [await do(lock.acquire()) for lock in locks]
    crowds, channels = [Crowd(front, lock) for lock in locks], []

    async def release_keys():
        for number, lease in enumerate(leases):
            await queued(front, direct, f"{name}:{number}", 4)
            channels.extend(direct.pubsub_channels())
            await do(lease.release())

    works = [waiter for crowd in crowds for waiter in crowd.waiters(4)]
    results = await front.elsewhere(*works, release_keys)

    assert results == [True] * 20 + [None]
    assert [crowd.most for crowd in crowds] == [1] * 5
    assert len(set(channels)) == 1


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
        client, known = server.client(), connections(direct)
        lock = BLOCKING.package.RedisLock(name, client=client, expire=30)
        lease = lock.acquire()

        async def release_keys():
            await queued(BLOCKING, direct, name, 200)
            # The subscription follows the pool at its next PING; then all join the queue again.
            client.connection_pool.disconnect(inuse_connections=False)
            await until(BLOCKING, lambda: len(connections(direct) - known) < 50)
            lease.release()

        await all_served(BLOCKING, lock, release_keys, 200)

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
        entries = [entry.decode() for entry in direct.zrange(queue_of(name), 0, -1)]
        channels.extend(entry.split("|")[0] for entry in entries)
        lease.release()

    def wait():
        with lock:
            pass

    lease = lock.acquire()
    waiter, releaser = threading.Thread(target=wait), threading.Thread(target=release_keys)
    waiter.start()
    releaser.start()
    child_result = in_child(work)
    waiter.join()
    releaser.join()

    assert child_result == "True"
    assert len(set(channels)) == 2
