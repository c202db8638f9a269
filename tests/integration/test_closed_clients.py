"""A client that is closed while it holds locks is closed after they were let go as well."""

from __future__ import annotations

import asyncio

import pytest
from support.leftovers import TIDY_FRONTS, connections, until

from redis_lock_decorators.asyncio import RedisLock

FRONTS = TIDY_FRONTS[1:]


@pytest.mark.parametrize("size", [100, 3])
async def test_release_leaves_no_connection_in_a_closed_client(front, server, direct, name, size):
    client = front.client(server, max_connections=size)
    before = connections(direct)

    async with RedisLock(name, client=client, expire=30), RedisLock(f"{name}:2", client=client):
        await client.aclose()

    assert direct.keys(f"sys:lock:{name}*") == []
    await until(front, lambda: connections(direct) <= before)
    pool = client.connection_pool
    known = [*pool._in_use_connections, *pool._available_connections]
    assert not any(connection.is_connected for connection in known)


async def test_closed_client_that_is_used_again_keeps_its_connection(front, server, direct, name):
    client = front.client(server)
    async with RedisLock(name, client=client):
        await client.aclose()
    before = int(direct.info("stats")["total_connections_received"])

    for _ in range(20):
        async with RedisLock(name, client=client):
            await asyncio.sleep(0)

    assert int(direct.info("stats")["total_connections_received"]) <= before + 2
