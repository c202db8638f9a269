"""Clients that wrap another client and have no pipeline: only what needs one is refused."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import Any

import pytest
from support.fronts import do

from redis_lock_decorators.errors import ConfigurationError


class Wrapper:
    """A blocking client that a program defines."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.connection_pool = client.connection_pool

    def execute_command(self, *words: Any, **options: Any) -> Any:
        return self._client.execute_command(*words, **options)


class AsyncWrapper(Wrapper):
    """The same for asyncio."""

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        return await self._client.execute_command(*words, **options)


def wrapped(front: Any, server: Any) -> Any:
    client = front.client(server)
    awaited = inspect.iscoroutinefunction(client.execute_command)
    return AsyncWrapper(client) if awaited else Wrapper(client)


async def test_lock_is_released_by_script_without_a_pipeline(front, server, direct, name):
    conn = wrapped(front, server)
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    assert await do(front.package.release_lock(conn, name, identifier))

    assert not direct.exists(f"sys:lock:{name}")


async def test_transaction_without_a_pipeline_is_refused(front, server, direct, name):
    conn = wrapped(front, server)
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    with pytest.raises(ConfigurationError, match="cannot WATCH"):
        await do(front.package.release_lock(conn, name, identifier, method="transaction"))
    with pytest.raises(ConfigurationError, match="cannot WATCH"):
        async with front.held(
            front.package.RedisLock(f"{name}:2", client=conn, release_method="transaction")
        ):
            pass

    assert not direct.exists(f"sys:lock:{name}:2")


async def test_replicas_without_a_pipeline_are_refused(front, server, direct, name):
    lock = front.package.RedisLock(name, client=wrapped(front, server), replicas=1)

    with pytest.raises(ConfigurationError, match="has no pipeline"):
        async with front.held(lock):
            pass

    assert not direct.exists(f"sys:lock:{name}")


async def test_tasks_and_threads_hold_locks_concurrently(front, server, name):
    conn, inside = wrapped(front, server), []

    async def hold(number: int) -> None:
        async with front.held(front.package.RedisLock(f"{name}:{number % 3}", client=conn)):
            inside.append(number)
            await front.sleep(0.01)

    def holder(number: int) -> Any:
        return lambda: hold(number)

    results = await front.elsewhere(*(holder(number) for number in range(9)))

    assert results == [None] * 9
    assert sorted(inside) == list(range(9))


async def test_lock_is_stored_where_the_clients_own_pool_connects(front, server, direct, name):
    client = front.client(server)
    usual = type(client.connection_pool)

    class PerTenant(usual):
        """A pool that chooses the database at each connection."""

        def make_connection(self):
            connection = super().make_connection()
            connection.db = 5
            return connection

    client.connection_pool = PerTenant(**client.connection_pool.connection_kwargs)
    lock = front.package.RedisLock(name, client=client, expire=0.6)
    async with front.held(lock):
        assert await do(client.exists(f"sys:lock:{name}"))
        assert not direct.exists(f"sys:lock:{name}")
        await front.sleep(1)
        assert await do(client.exists(f"sys:lock:{name}"))
    await do(client.connection_pool.disconnect())


class Proxy:
    """A proxy for the client of the current context, like those of Flask."""

    __slots__ = ("_get_current_object",)

    def __init__(self, find: Any) -> None:
        self._get_current_object = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get_current_object(), name)


@pytest.mark.parametrize("given_as", ["client", "get_redis_connection"])
async def test_proxy_for_a_client_also_works_in_the_background(
    front, server, direct, name, given_as
):
    current: ContextVar[Any] = ContextVar("current")
    current.set(front.client(server))
    proxy = Proxy(current.get)
    option = {given_as: proxy if given_as == "client" else lambda: proxy}

    async with front.held(front.package.RedisLock(name, expire=0.6, **option)) as lease:
        await front.sleep(1)
        assert not lease.lost
        assert direct.exists(f"sys:lock:{name}")


async def test_proxy_uses_the_client_of_the_current_context(front, server, direct, name):
    current: ContextVar[Any] = ContextVar("current")
    lock = front.package.RedisLock(name, expire=5, client=Proxy(current.get))

    for db in (3, 4):
        client = front.client(server, db=db)
        current.set(client)
        async with front.held(lock):
            assert await do(client.exists(f"sys:lock:{name}"))
