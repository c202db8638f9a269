"""A cluster's replica replaces a master that is stopped: connections to it stay open."""

from __future__ import annotations

import asyncio
import contextlib

from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from support.cluster_nodes import Nodes

from redis_lock_decorators import RedisLock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.testing import LocalCluster

#: Seconds; the replica is the master after about three.
EXPIRE = 12.0
#: Longer than a renewal waits, none, and shorter.
SOCKET_TIMEOUTS = [60.0, None, 1.0]


def test_leases_are_renewed_at_the_replica_of_a_stopped_master(cluster, nodes):
    lost = asyncio.run(lost_after_a_stop(cluster, nodes))

    assert lost == []


async def lost_after_a_stop(cluster: LocalCluster, nodes: Nodes) -> list[str]:
    """The names of the leases that were lost although a replica replaced their master."""
    address = {"host": "127.0.0.1", "port": cluster.masters[0].port}
    leases = []
    async with contextlib.AsyncExitStack() as stack:
        for seconds in SOCKET_TIMEOUTS:
            for count in (1, 2):  # one renewal is sent alone, two in a pipeline
                client = stack.enter_context(RedisCluster(**address, socket_timeout=seconds))
                in_tasks = AsyncRedisCluster(**address, socket_timeout=seconds)
                stack.push_async_callback(in_tasks.aclose)
                names = [f"{seconds}:{count}:{number}" for number in range(count)]
                for name in names:
                    lock = RedisLock(nodes.at(0, f"threads:{name}"), client=client, expire=EXPIRE)
                    leases.append(lock.acquire(0))
                    other = nodes.at(0, f"tasks:{name}")
                    async_lock = AsyncRedisLock(other, client=in_tasks, expire=EXPIRE)
                    leases.append(await async_lock.acquire(0))

        cluster.masters[0].pause()
        try:
            await asyncio.sleep(EXPIRE + 1)
            return [lease.name for lease in leases if lease.lost]
        finally:
            cluster.masters[0].resume()
