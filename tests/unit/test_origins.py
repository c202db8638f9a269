"""The origin of a client's pool changes when its connections lead elsewhere."""

from __future__ import annotations

import gc
import inspect
from typing import Any
from unittest import mock

import pytest
import redis
import redis.asyncio

from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.transport.origins import origin

POOLS = [redis.ConnectionPool, redis.BlockingConnectionPool]


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_origin_of_an_unchanged_pool_is_the_same(pool: Any) -> None:
    assert origin(pool) == origin(pool)


@pytest.mark.parametrize("method", ["disconnect", "reset"])
def test_pool_that_drops_its_connections_has_another_origin(pool: Any, method: str) -> None:
    before = origin(pool)

    getattr(pool, method)()

    assert origin(pool) != before
    assert origin(pool) == origin(pool)


def test_pool_of_a_closed_client_has_another_origin() -> None:
    client = redis.Redis()
    before = origin(client.connection_pool)

    client.close()

    assert origin(client.connection_pool) != before


def test_recorded_pool_still_drops_its_connections(pool: Any) -> None:
    origin(pool)
    connection = mock.Mock()
    known = getattr(pool, "_connections", None)
    (pool._available_connections if known is None else known).append(connection)

    pool.disconnect()

    connection.disconnect.assert_called_once_with()


def test_two_pools_have_different_origins() -> None:
    assert origin(redis.ConnectionPool()) != origin(redis.ConnectionPool())
    assert origin(redis.asyncio.ConnectionPool()) != origin(redis.asyncio.ConnectionPool())


def test_client_collected_in_a_reference_cycle_closes_its_connections() -> None:
    client, connection = redis.Redis(), mock.Mock()
    origin(client.connection_pool)
    client.connection_pool._available_connections.append(connection)
    client.itself = client  # type: ignore[attr-defined]

    del client
    gc.collect()

    connection.disconnect.assert_called_with()


def test_recorded_method_keeps_its_signature(pool: Any) -> None:
    client = redis.Redis(connection_pool=pool)
    parameters = inspect.signature(pool.disconnect).parameters
    origin(pool)

    assert inspect.signature(pool.disconnect).parameters == parameters
    refuse_unfit_client(client, awaited=False)


def test_method_that_a_program_set_on_the_pool_is_called() -> None:
    pool, calls = redis.ConnectionPool(), []
    pool.disconnect = lambda *args, **options: calls.append(options)  # type: ignore[method-assign]
    before = origin(pool)

    pool.disconnect(inuse_connections=False)

    assert calls == [{"inuse_connections": False}]
    assert origin(pool) != before


def test_pool_is_recorded_again_after_a_patch() -> None:
    pool = redis.ConnectionPool()
    origin(pool)
    with mock.patch.object(pool, "disconnect", mock.Mock(spec=[])):
        during = origin(pool)
        pool.reset()
        assert origin(pool) != during
    after = origin(pool)

    pool.disconnect()
    assert origin(pool) != after


def test_origin_of_a_pool_without_attributes_is_its_address() -> None:
    class Bare:
        __slots__ = ("connection_kwargs",)

        def __init__(self) -> None:
            self.connection_kwargs = {"host": "one"}

    pool = Bare()
    before = origin(pool)
    assert origin(pool) == before

    pool.connection_kwargs["host"] = "other"

    assert origin(pool) != before
