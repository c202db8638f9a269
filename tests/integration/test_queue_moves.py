"""Waiters whose lock moves to another server: a slot that migrates, a replica that is promoted."""

from __future__ import annotations

import time
from functools import partial

import pytest
import redis
from support.fronts import LEGACY, do
from support.leftovers import BLOCKING, PATIENCE, TIDY_FRONTS, until
from support.queues import entered_while, queue_of
from support.topologies import Topology, async_master

from redis_lock_decorators.rules.keys import slot_of
from redis_lock_decorators.testing import LocalCluster, LocalSentinel

FRONTS = TIDY_FRONTS
#: Seconds of each turn: long enough to meet another.
HOLD = 0.01

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no cluster of its own")


class Nodes:
    """The nodes of a cluster, each with a client of its own, and their names for each other."""

    def __init__(self, cluster):
        self.clients = [redis.Redis(host=node.host, port=node.port) for node in cluster.nodes]
        self.names = [client.execute_command("CLUSTER", "MYID") for client in self.clients]

    def close(self):
        for client in self.clients:
            client.close()

    def owner(self, key):
        """The place of the node that has the key."""
        slot = slot_of(key)
        return next(
            place
            for place, client in enumerate(self.clients)
            if any(start <= slot <= end for start, end in self._own_slots(client, place))
        )

    def _own_slots(self, client, place):
        return [
            (start, end)
            for start, end, master, *_ in client.execute_command("CLUSTER", "SLOTS")
            if master[2] in (self.names[place], self.names[place].decode())
        ]

    def move(self, key, to):
        """Migrate the key's slot with all that is in it, as redis-cli does."""
        slot, source = slot_of(key), self.owner(key)
        here, there = self.clients[source], self.clients[to]
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.names[source])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.names[to])
        port = there.connection_pool.connection_kwargs["port"]
        while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            here.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
        for client in (there, here, *self.clients):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.names[to])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster):
    nodes = Nodes(cluster)
    yield nodes
    nodes.close()


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
    assert [client.keys(f"*{name}*") for client in nodes.clients] == [[], [], []]
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
            await front.sleep(2)  # it is renewed where it is
        assert not lease.lost
        await do(lease.release())

    await entered_while(front, lock, move, 3, HOLD)

    assert [client.keys(f"*{name}*") for client in nodes.clients] == [[], [], []]
    if front is BLOCKING:
        client.close()


async def test_waiters_outlast_a_failover(front, name):
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

        assert looking.keys(f"*{name}*") == []
        looking.close()
        if front is BLOCKING:
            client.close()
