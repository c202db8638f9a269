"""Waiters whose lock moves to another server: a slot that migrates, a replica that is promoted."""

from __future__ import annotations

import time
from functools import partial

import pytest
import redis
from support.fronts import LEGACY, do
from support.leftovers import BLOCKING, PATIENCE, TIDY_FRONTS, lasting, until
from support.queues import entered_while, queue_of
from support.topologies import Topology, async_master

from redis_lock_decorators.testing import LocalCluster, LocalSentinel

FRONTS = TIDY_FRONTS
#: Seconds for which each waiter holds the lock: long enough to overlap with another holder.
HOLD = 0.01

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no cluster of its own")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


def answers(client):
    try:
        return client.ping()
    except (redis.ConnectionError, redis.TimeoutError):
        return False


@pytest.mark.parametrize("when", ["while it is held", "in the midst of hand-overs"])
async def test_waiters_follow_a_slot_that_migrates(front, cluster, nodes, name, when):
    client = front.cluster(cluster.nodes[0])
    lock = front.package.RedisLock(name, client=client, acquire_time=PATIENCE, expire=30)
    key, released = f"sys:lock:{name}".encode(), []
    lease = await do(lock.acquire())
    home = nodes.owner(key)
    to = (home + 1) % 3

    async def move():
        await until(front, lambda: nodes.clients[home].zcard(queue_of(name)) == 5)
        if when == "while it is held":
            nodes.move(key, to)
        released.append(time.monotonic())
        await do(lease.release())
        if when != "while it is held":
            await front.sleep(0.015)
            nodes.move(key, to)

    times = await entered_while(front, lock, move, 5, HOLD)

    assert times[-1] - released[0] < 10
    assert nodes.owner(key) == to
    assert [lasting(client, f"*{name}*") for client in nodes.clients] == [[], [], []]
    if front is BLOCKING:
        client.close()


async def test_leases_and_waiters_follow_a_slot_there_and_back(front, cluster, nodes, name):
    client = front.cluster(cluster.nodes[0])
    lock = front.package.RedisLock(name, client=client, acquire_time=PATIENCE, expire=3)
    key = f"sys:lock:{name}".encode()
    lease, home = await do(lock.acquire()), nodes.owner(key)

    async def move():
        await until(front, lambda: nodes.clients[home].zcard(queue_of(name)) == 3)
        for to in ((home + 1) % 3, home):
            nodes.move(key, to)
            await front.sleep(2)  # it is renewed at its present node
        assert not lease.lost
        await do(lease.release())

    await entered_while(front, lock, move, 3, HOLD)

    assert [lasting(client, f"*{name}*") for client in nodes.clients] == [[], [], []]
    if front is BLOCKING:
        client.close()


async def test_waiters_survive_a_failover(front, name):
    with LocalSentinel() as sentinels:
        watched = Topology("sentinel", sentinels.client, partial(async_master, sentinels))
        client = front.connection(watched)
        lock = front.package.RedisLock(name, client=client, acquire_time=60, expire=20)
        lease = await do(lock.acquire())
        looking = sentinels.client()

        async def kill():
            await until(front, lambda: looking.zcard(queue_of(name)) == 5)
            sentinels.master.kill()
            await until(front, lambda: answers(looking), lambda: "there is no new master")
            await do(lease.release())

        await entered_while(front, lock, kill, 5, HOLD)

        assert lasting(looking, f"*{name}*") == []
        looking.close()
        if front is BLOCKING:
            client.close()
