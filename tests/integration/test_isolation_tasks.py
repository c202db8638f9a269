"""An error of one task does not affect the other tasks that use the same client."""

from __future__ import annotations

import asyncio
import inspect
import time

import pytest
import redis
from support.fronts import AsyncioFront
from support.leftovers import lasting

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from redis_lock_decorators import ConfigurationError, LockError
from redis_lock_decorators.asyncio import RedisLock, acquire_lock, extend_lock, release_lock
from redis_lock_decorators.testing import LocalServer

FRONTS = [AsyncioFront()]
#: A value that is no text in UTF-8.
BINARY = b"\xff\xfe\x80"
MANY = range(50)


async def together(client, name, failing):
    """Run fifty cycles and a failing work concurrently; return the error of the failing one."""

    async def cycle(number):
        async with RedisLock(f"{name}:{number}", client=client, expire=20) as lease:
            await lease.extend()
        return number

    works = [cycle(number) for number in MANY]
    works[25:25] = [failing]
    results = await asyncio.gather(*works, return_exceptions=True)
    failed = results.pop(25)
    assert results == list(MANY)
    return failed


@pytest.mark.parametrize("identifier", ["\ud800", b"\xff", "\udc80x"])
async def test_invalid_identifier_affects_only_its_own_caller(front, server, name, identifier):
    client = front.client(server)

    for function in (extend_lock, release_lock):
        details = (5,) if function is extend_lock else ()
        found = await together(client, name, function(client, name, identifier, *details))
        assert isinstance(found, ConfigurationError)


@pytest.mark.parametrize("kind", ["list", "binary"])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_key_of_other_data_affects_only_its_own_caller(
    front, server, direct, name, kind, protocol
):
    client = front.client(server, decode_responses=True, protocol=protocol)
    key = f"sys:lock:{name}"
    if kind == "list":
        direct.rpush(key, "no lock")
    else:
        direct.set(key, BINARY)

    wait = 20 if kind == "list" else 0
    found = await together(client, name, RedisLock(name, client=client).acquire(wait))

    assert isinstance(found, LockError) if kind == "list" else found is None


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "ascii"])
async def test_clients_of_any_encoding_wait_for_an_external_holder(
    front, server, direct, name, encoding
):
    client = front.client(server, decode_responses=True, encoding=encoding, protocol=2)
    direct.set(f"sys:lock:{name}", BINARY, px=300)

    async with RedisLock(name, client=client, acquire_time=20):
        assert direct.get(f"sys:lock:{name}") != BINARY


async def test_lease_lost_to_a_binary_value_affects_no_other_lease(front, server, direct, name):
    client = front.client(server, decode_responses=True)
    lost = []
    locks = [
        RedisLock(
            f"{name}:{n}", client=client, expire=2, on_lost=lambda lease, _: lost.append(lease)
        )
        for n in MANY
    ]
    leases = [await lock.acquire() for lock in locks]
    direct.set(leases[0].key, BINARY)

    await asyncio.sleep(3)

    assert [lease.lost for lease in leases] == [True] + [False] * 49
    for lease in leases[1:]:
        await lease.release()


@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.parametrize("kind", [ConnectionPool, BlockingConnectionPool])
async def test_exhausted_pool_loses_no_lease(front, server, direct, name, kind, size):
    pool = kind(host=server.host, port=server.port, max_connections=size)
    client = Redis(connection_pool=pool)
    named = inspect.signature(pool.get_connection).parameters["command_name"]
    words = ("GET",) if named.default is inspect.Parameter.empty else ()
    lost = []
    try:
        async with RedisLock(name, client=client, expire=1, on_lost=lambda *_: lost.append(1)):
            connections = [
                await pool.get_connection(*words)
                for _ in range(size - len(pool._in_use_connections))
            ]
            await asyncio.sleep(2)
            assert await RedisLock(name, client=client).locked()
            for connection in connections:
                await pool.release(connection)
    finally:
        await pool.disconnect()

    assert lost == []
    assert not direct.exists(f"sys:lock:{name}")


async def test_connections_of_the_program_remain_unchanged(front, name):
    with LocalServer() as server:
        client = Redis(host=server.host, port=server.port, socket_timeout=0.5, retry=None)
        await client.ping()
        pool = client.connection_pool
        (own,) = pool._available_connections
        before = dict(vars(own))
        async with RedisLock(name, client=client):
            await asyncio.gather(*[RedisLock(f"{name}:{n}", client=client).locked() for n in MANY])
        assert pool._available_connections == [own]
        assert vars(own) == before
        server.pause()
        try:
            with pytest.raises(redis.exceptions.TimeoutError):
                await RedisLock(f"{name}:2", client=client).acquire(0.3)
            assert own.socket_timeout == 0.5
            with pytest.raises(redis.exceptions.TimeoutError):
                await asyncio.wait_for(client.get("x"), 20)
        finally:
            server.resume()
        await client.aclose()


async def test_cancelling_all_tasks_does_not_stop_later_requests(front, server, name):
    """At each step of a burst of requests, including the tasks of the package."""
    for steps in range(12):
        client = front.client(server)
        lock = RedisLock(name, client=client)
        async with lock:
            pass
        own = asyncio.current_task()
        others = [
            asyncio.create_task(RedisLock(f"{name}:{n}", client=client).locked()) for n in MANY
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        rest = [task for task in asyncio.all_tasks() if task is not own]
        for task in rest:
            task.cancel()
        started = time.monotonic()
        await asyncio.gather(*rest, return_exceptions=True)
        assert len([task for task in others if task.done()]) == 50

        assert await together(client, name, lock.locked()) is False
        assert time.monotonic() - started < 4, "requests were not sent until their time-outs"


async def test_refused_connection_is_reported_as_not_sent(front, name):
    """A request without a server cannot have reached it."""
    with LocalServer() as server:
        client = front.client(server, retry=None)
        held = [await acquire_lock(client, f"{name}:{n}", 0, 30) for n in MANY]
        assert all(held)
        server.kill()
        await asyncio.sleep(0.1)
        works = [RedisLock(f"{name}:{n}", client=client, acquire_time=0).locked() for n in MANY]
        found = await asyncio.gather(*works, return_exceptions=True)

    # The time of the last try may be over before its connection is refused.
    assert {type(error).__name__ for error in found} <= {"ConnectionError", "TimeoutError"}
    assert all(error.unsent for error in found)
    assert len({id(error) for error in found}) == 50


async def test_every_request_of_a_long_backlog_is_served(front, server, direct, name):
    """More concurrent requests than can be sent within the time-out of a silent server."""
    client = front.client(server)
    served = []

    async def wait(number):
        lock = RedisLock(f"{name}:{number % 50}", client=client, expire=60, acquire_time=None)
        async with lock:
            served.append(number)

    await asyncio.gather(*[wait(number) for number in range(10_000)])

    assert sorted(served) == list(range(10_000))
    assert not lasting(direct, f"sys:lock:{name}:*")


async def test_connections_keep_the_retry_policy_of_the_client(front, server, direct, name):
    """With several tasks that use the client and its locks."""
    client = front.client(server, retry=Retry(ConstantBackoff(0.01), 7))

    async def hold(number):
        async with RedisLock(f"{name}:{number}", client=client, release_method="native"):
            await client.set(f"{name}:own", number)

    await asyncio.gather(*map(hold, range(8)))

    direct.delete(f"{name}:own")
    pool = client.connection_pool
    assert {connection.retry._retries for connection in pool._available_connections} == {7}


@pytest.mark.parametrize("size", [1, 10, 11])
async def test_pool_keeps_all_connections_for_the_program(front, server, name, size):
    client = front.client(server, max_connections=size)
    async with RedisLock(name, client=client):
        pass

    popped = [client.blpop([f"{name}:{number}"], timeout=0.01) for number in range(size)]

    assert await asyncio.gather(*popped) == [None] * size
