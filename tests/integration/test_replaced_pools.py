"""A client whose pool is replaced by one of the program's own class, after its first lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis
import redis.asyncio
from support.fronts import do


def module_of(client: Any) -> Any:
    return redis.asyncio if isinstance(client, redis.asyncio.Redis) else redis


def choosing_pool(client: Any) -> None:
    """Give the client a pool that chooses a database for each connection."""

    class Choosing(module_of(client).ConnectionPool):  # type: ignore[misc]
        def make_connection(self) -> Any:
            connection = super().make_connection()
            connection.db = 1
            return connection

    client.connection_pool = Choosing(**client.connection_pool.connection_kwargs)


def choosing_class(client: Any) -> None:
    """Give the client's pool a class of connections that chooses the database."""

    class Choosing(module_of(client).Connection):  # type: ignore[misc]
        def __init__(self, **parameters: Any) -> None:
            super().__init__(**{**parameters, "db": 1})

    client.connection_pool.connection_class = Choosing


def patched_method(client: Any) -> None:
    """Replace the method of the client's pool by which it makes connections."""
    make_usual = client.connection_pool.make_connection

    def make() -> Any:
        connection = make_usual()
        connection.db = 1
        return connection

    client.connection_pool.make_connection = make


@pytest.fixture(params=[choosing_pool, choosing_class, patched_method])
def replace(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def elsewhere(server: Any) -> Any:
    """A client of the database that the pools of this page choose."""
    with closing(redis.Redis(host=server.host, port=server.port, db=1)) as client:
        yield client


async def test_later_locks_are_where_the_new_pool_leads(
    front: Any, server: Any, elsewhere: Any, name: str, replace: Callable[[Any], None]
) -> None:
    client, key = front.client(server), f"sys:lock:{name}"
    async with front.held(front.package.RedisLock(name, client=client)):
        pass
    replace(client)

    async with front.held(front.package.RedisLock(name, client=client)):
        assert elsewhere.exists(key)
    assert not elsewhere.exists(key)
    elsewhere.set(key, "another client", px=60_000)
    assert await do(front.package.RedisLock(name, client=client).acquire(blocking=False)) is None


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_lease_is_renewed_and_released_where_the_new_pool_leads(
    front: Any, server: Any, elsewhere: Any, name: str, replace: Callable[[Any], None], method: str
) -> None:
    client, key = front.client(server), f"sys:lock:{name}"
    lock = front.package.RedisLock(name, client=client, expire=1.5, release_method=method)
    async with front.held(lock) as lease:
        with closing(server.client()) as direct:
            elsewhere.restore(key, direct.pttl(key), direct.dump(key))
        replace(client)
        await front.sleep(2.5)
        assert not lease.lost
        assert elsewhere.exists(key)
    assert not elsewhere.exists(key)
