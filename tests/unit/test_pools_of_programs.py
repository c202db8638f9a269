"""Pools that decide by themselves where to connect are not passed by."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport.private_pool import PrivatePool


class Making(redis.ConnectionPool):
    def make_connection(self) -> Any:
        return super().make_connection()


class Giving(redis.BlockingConnectionPool):
    def get_connection(self, *names: Any, **options: Any) -> Any:
        return super().get_connection(*names, **options)


class TaskMaking(redis.asyncio.ConnectionPool):
    def make_connection(self) -> Any:
        return super().make_connection()


class TaskGiving(redis.asyncio.ConnectionPool):
    async def get_connection(self, *names: Any, **options: Any) -> Any:
        return await super().get_connection(*names, **options)


class Named(redis.ConnectionPool):
    """One that decides nothing."""


def sentinels() -> Any:
    return redis.sentinel.SentinelConnectionPool("master", redis.sentinel.Sentinel([("one", 1)]))


def is_passed_by(pool: Any) -> bool:
    world = redis.asyncio if isinstance(pool, redis.asyncio.ConnectionPool) else redis
    client = world.Redis(connection_pool=pool)
    known: ClientState[Any] = ClientState(client, PrivatePool(), None)  # type: ignore[arg-type]
    return known.is_untouched(client)


@pytest.mark.parametrize("kind", [Making, Giving, TaskMaking, TaskGiving])
def test_connections_of_a_pool_with_a_way_of_its_own_are_its_own(kind: Any) -> None:
    assert not is_passed_by(kind())


def test_a_function_that_was_put_into_a_pool_is_a_way_of_its_own() -> None:
    pool = redis.ConnectionPool()
    pool.make_connection = lambda: redis.Connection(db=5)  # type: ignore[method-assign]

    assert not is_passed_by(pool)


@pytest.mark.parametrize(
    "make",
    [
        redis.ConnectionPool,
        redis.BlockingConnectionPool,
        Named,
        sentinels,
        redis.asyncio.ConnectionPool,
        redis.asyncio.BlockingConnectionPool,
    ],
)
def test_the_librarys_own_pools_are_passed_by(make: Any) -> None:
    assert is_passed_by(make())
