"""Where a client's pool leads, as far as it can be known without asking it for a connection."""

from __future__ import annotations

import gc
import inspect
from typing import Any
from unittest import mock

import pytest
import redis
import redis.asyncio

from redis_lock_decorators._io.client_checks import refuse_unfit
from redis_lock_decorators._io.transport.origins import origin, task_origin

POOLS = [redis.ConnectionPool, redis.BlockingConnectionPool]


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_it_stays_the_same_while_nothing_happens(pool: Any) -> None:
    assert origin(pool) == origin(pool)


@pytest.mark.parametrize("method", ["disconnect", "reset"])
def test_a_pool_that_drops_its_connections_leads_elsewhere(pool: Any, method: str) -> None:
    before = origin(pool)

    getattr(pool, method)()

    assert origin(pool) != before
    assert origin(pool) == origin(pool)


def test_so_does_that_of_a_client_that_is_closed() -> None:
    client = redis.Redis()
    before = origin(client.connection_pool)

    client.close()

    assert origin(client.connection_pool) != before


def test_a_pool_still_drops_what_it_has(pool: Any) -> None:
    origin(pool)
    connection = mock.Mock()
    known = getattr(pool, "_connections", None)
    (pool._available_connections if known is None else known).append(connection)

    pool.disconnect()

    connection.disconnect.assert_called_once_with()


def test_two_pools_are_never_the_same() -> None:
    assert origin(redis.ConnectionPool()) != origin(redis.ConnectionPool())
    assert task_origin(redis.asyncio.ConnectionPool()) != task_origin(
        redis.asyncio.ConnectionPool()
    )


def test_a_client_that_is_collected_in_a_circle_closes_its_connections() -> None:
    client, connection = redis.Redis(), mock.Mock()
    origin(client.connection_pool)
    client.connection_pool._available_connections.append(connection)
    client.itself = client  # type: ignore[attr-defined]

    del client
    gc.collect()

    connection.disconnect.assert_called_with()


def test_what_is_noted_looks_as_before(pool: Any) -> None:
    client = redis.Redis(connection_pool=pool)
    parameters = inspect.signature(pool.disconnect).parameters
    origin(pool)

    assert inspect.signature(pool.disconnect).parameters == parameters
    refuse_unfit(client, awaited=False)


def test_a_method_that_somebody_has_put_into_the_pool_is_called() -> None:
    pool, calls = redis.ConnectionPool(), []
    pool.disconnect = lambda *args, **options: calls.append(options)  # type: ignore[method-assign]
    before = origin(pool)

    pool.disconnect(inuse_connections=False)

    assert calls == [{"inuse_connections": False}]
    assert origin(pool) != before


def test_after_a_patch_it_is_known_again() -> None:
    pool = redis.ConnectionPool()
    origin(pool)
    with mock.patch.object(pool, "disconnect", mock.Mock(spec=[])):
        during = origin(pool)
        pool.reset()
        assert origin(pool) != during
    after = origin(pool)

    pool.disconnect()
    assert origin(pool) != after


def test_a_pool_that_takes_no_attributes_is_told_by_its_address() -> None:
    class Bare:
        __slots__ = ("connection_kwargs",)

        def __init__(self) -> None:
            self.connection_kwargs = {"host": "one"}

    pool = Bare()
    before = origin(pool)
    assert origin(pool) == before

    pool.connection_kwargs["host"] = "other"

    assert origin(pool) != before
