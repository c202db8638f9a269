"""Pools with their own way to connect are used; for others private connections are made."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport.private_pool import PrivatePool


class MakesConnections(redis.ConnectionPool):
    def make_connection(self) -> Any:
        return super().make_connection()


class GetsConnections(redis.BlockingConnectionPool):
    def get_connection(self, *names: Any, **options: Any) -> Any:
        return super().get_connection(*names, **options)


class MakesAsyncConnections(redis.asyncio.ConnectionPool):
    def make_connection(self) -> Any:
        return super().make_connection()


class GetsAsyncConnections(redis.asyncio.ConnectionPool):
    async def get_connection(self, *names: Any, **options: Any) -> Any:
        return await super().get_connection(*names, **options)


class Subclass(redis.ConnectionPool):
    """A subclass without methods of its own."""


def sentinels() -> Any:
    return redis.sentinel.SentinelConnectionPool("master", redis.sentinel.Sentinel([("one", 1)]))


def is_bypassed(pool: Any) -> bool:
    world = redis.asyncio if isinstance(pool, redis.asyncio.ConnectionPool) else redis
    client = world.Redis(connection_pool=pool)
    known: ClientState[Any] = ClientState(client, PrivatePool(), None)  # type: ignore[arg-type]
    return known.is_untouched(client)


@pytest.mark.parametrize(
    "kind", [MakesConnections, GetsConnections, MakesAsyncConnections, GetsAsyncConnections]
)
def test_pool_with_its_own_methods_is_used(kind: Any) -> None:
    assert not is_bypassed(kind())


def test_pool_with_a_replaced_method_is_used() -> None:
    pool = redis.ConnectionPool()
    pool.make_connection = lambda: redis.Connection(db=5)  # type: ignore[method-assign]

    assert not is_bypassed(pool)


@pytest.mark.parametrize(
    "make",
    [
        redis.ConnectionPool,
        redis.BlockingConnectionPool,
        Subclass,
        sentinels,
        redis.asyncio.ConnectionPool,
        redis.asyncio.BlockingConnectionPool,
    ],
)
def test_plain_pools_of_the_client_library_are_bypassed(make: Any) -> None:
    assert is_bypassed(make())
