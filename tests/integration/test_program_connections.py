"""Locks use connections of their own: those of the program neither change them nor are changed."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from support.fronts import do
from support.leftovers import TIDY_FRONTS

from redis_lock_decorators import LockTimeoutError
from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS
METHODS = pytest.mark.parametrize("method", ["script", "native", "transaction"])


@pytest.fixture
def lone_server() -> Any:
    """A server that a test may pause."""
    with LocalServer() as server:
        yield server
        server.resume()


async def select_by_hand(client: Any) -> None:
    """Have the idle connections of a client use another database."""
    await do(client.ping())
    await do(client.execute_command("SELECT", 1))
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("SELECT", 1)
    await do(pipeline.execute())


@METHODS
@pytest.mark.parametrize("options", [{}, {"single_connection_client": True}])
async def test_locks_use_the_database_of_the_client_settings(
    front, server, direct, name, method, options
):
    client = front.client(server, **options)
    await select_by_hand(client)
    lock = front.package.RedisLock(name, client=client, release_method=method)

    async with front.held(lock):
        assert direct.exists(f"sys:lock:{name}")
        other = front.package.RedisLock(name, client=front.client(server), acquire_time=0)
        with pytest.raises(LockTimeoutError):
            async with front.held(other):
                pass

    assert not direct.exists(f"sys:lock:{name}")


async def test_functions_use_the_database_of_the_client_settings(front, server, direct, name):
    client = front.client(server)
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))
    await select_by_hand(client)

    assert await do(front.package.release_lock(client, name, identifier))
    assert not direct.exists(f"sys:lock:{name}")


async def test_locks_use_the_user_of_the_client_settings(front, server, direct, name):
    direct.execute_command("ACL", "SETUSER", "small", "on", ">p", "+get", "+auth", "~*")
    client = front.client(server)
    await do(client.execute_command("AUTH", "small", "p"))

    async with front.held(front.package.RedisLock(name, client=client)):
        assert direct.exists(f"sys:lock:{name}")


@METHODS
@pytest.mark.parametrize("kind", ["ConnectionPool", "BlockingConnectionPool"])
async def test_release_does_not_wait_for_a_connection_of_the_program(
    front, server, direct, name, method, kind
):
    module = redis.asyncio if front.name == "asyncio" else redis
    waits = {"timeout": None} if kind == "BlockingConnectionPool" else {}
    pool = getattr(module, kind)(host=server.host, port=server.port, max_connections=1, **waits)
    client = module.Redis(connection_pool=pool)
    messages = client.pubsub()
    try:
        lock = front.package.RedisLock(name, client=client, release_method=method)
        async with front.held(lock):
            await do(messages.subscribe("a channel"))
        assert not direct.exists(f"sys:lock:{name}")

        identifier = await do(front.package.acquire_lock(client, name, 0, 30))
        assert await do(front.package.release_lock(client, name, identifier))
    finally:
        await do(messages.aclose() if front.name == "asyncio" else messages.close())
        await do(pool.disconnect())


@METHODS
async def test_release_ends_with_its_lease_although_the_server_is_silent(
    front, lone_server, name, method
):
    client = front.client(lone_server, socket_timeout=None)
    lost: list[Any] = []
    lock = front.package.RedisLock(
        name, client=client, release_method=method, expire=1, on_lost=lambda *_: lost.append(1)
    )
    async with front.held(lock):  # so that MULTI is known to be permitted
        pass
    async with front.held(lock):
        lone_server.pause()
        began = time.monotonic()

    assert time.monotonic() - began < 15
    assert lost == []
