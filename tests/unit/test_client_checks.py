"""What is no client, or one of the other world, is told where it is given, with the cure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_decorators import ConfigurationError, Locks, RedisLock, acquire_lock, redis_lock
from redis_lock_decorators._io.client_checks import refuse_unfit
from redis_lock_decorators.lock import Lock

aredis = pytest.importorskip("redis.asyncio")  # not in redis-py 3.5

BLOCKING, ASYNC = redis.Redis(), aredis.Redis()


def plain(n: int) -> None: ...


async def later(n: int) -> None: ...


def asynchronous() -> Any:
    from redis_lock_decorators import asyncio

    return asyncio.RedisLock


def told(words: str, work: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        work()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["redis://:secret@localhost", 42, object(), b"x"])
@pytest.mark.parametrize("kind", [RedisLock, asynchronous(), redis_lock, Locks().lock])
def test_what_is_no_client_is_told_at_once(kind: Any, wrong: Any) -> None:
    told("is no Redis client: .*give one, as in redis", lambda: kind("x", client=wrong))
    told("is no Redis client: .*give one, as in redis", lambda: Lock(wrong, "x"))
    told("is no Redis client: .*give one, as in redis", lambda: acquire_lock(wrong, "x"))


@pytest.mark.parametrize("wrong", [redis.Redis, aredis.Redis, redis.cluster.RedisCluster])
@pytest.mark.parametrize("kind", [RedisLock, asynchronous(), redis_lock, Locks().lock])
def test_a_class_is_told_at_once(kind: Any, wrong: Any) -> None:
    told(f"{wrong.__name__} is a class: make a client of it", lambda: kind("x", client=wrong))
    told(f"{wrong.__name__} is a class", lambda: Lock(wrong, "x"))
    told(f"{wrong.__name__} is a class", lambda: acquire_lock(wrong, "x"))
    lock = RedisLock("x", get_redis_connection=lambda: wrong)
    told(f"{wrong.__name__} is a class", lock.acquire)


def test_a_sentinel_is_told_with_its_cure() -> None:
    sentinel = redis.sentinel.Sentinel([("localhost", 1)])

    told("master_for", lambda: RedisLock("x", client=sentinel))
    told("master_for", lambda: acquire_lock(sentinel, "x"))


def test_a_client_of_the_other_world_is_told_at_once() -> None:
    for work in (
        lambda: RedisLock("x", client=ASYNC),
        lambda: Locks().lock("x", client=ASYNC),
        lambda: redis_lock("x", client=ASYNC)(plain),
        lambda: redis_lock(plain, client=ASYNC),
        lambda: Lock(ASYNC, "x"),
        lambda: acquire_lock(ASYNC, "x"),
    ):
        told("asyncio client, but this code needs a blocking one: .*asyncio", work)
    for work in (
        lambda: asynchronous()("x", client=BLOCKING),
        lambda: Locks().async_lock("x", client=BLOCKING),
        lambda: redis_lock("x", client=BLOCKING)(later),
    ):
        told("blocking client, but this code needs an asyncio one: .*redis.asyncio", work)


@pytest.mark.parametrize("client", [BLOCKING, ASYNC, redis.Redis])
def test_a_client_in_the_place_of_a_name_is_told(client: Any) -> None:
    for work in (
        lambda: RedisLock(client, "x"),
        lambda: RedisLock("x", client),
        lambda: RedisLock(client),
        lambda: asynchronous()("x", client),
        lambda: Locks().lock("x", client),
        lambda: redis_lock(client, "x"),
        lambda: redis_lock("x", client),
        lambda: redis_lock(client),
    ):
        told("where a lock's name belongs: .*client=client", work)


def test_an_extension_that_has_no_client_yet_is_checked_at_its_use() -> None:
    class Extension:
        client: Any = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

    extension = Extension()
    lock, decorated = RedisLock("x", client=extension), redis_lock("x", client=extension)(plain)

    told("no Redis client", lock.acquire)
    told("no Redis client", lambda: decorated(1))
    extension.client = ASYNC
    told("asyncio client", lock.acquire)


def test_an_async_factory_is_told_with_its_cure() -> None:
    async def connect() -> Any:
        return ASYNC

    told("give a plain one", RedisLock("x", get_redis_connection=connect).acquire)


def returning(execute: Any) -> Any:
    """A tracer's plain function, which returns what the method gives."""
    return lambda *args, **options: execute(*args, **options)


class Wrapper:
    """A client in a user's own clothes: its pool tells its world."""

    def __init__(self, client: Any) -> None:
        self.connection_pool = client.connection_pool
        self.execute_command = returning(client.execute_command)

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


def dressed(client: Any) -> list[Any]:
    """Clients whose ``execute_command`` is no coroutine function, though it may give awaitables."""
    kind = type(client)
    overriding = type("Overriding", (kind,), {"execute_command": returning(kind.execute_command)})
    traced = functools.wraps(kind.execute_command)(returning(kind.execute_command))
    tracing = type("Tracing", (kind,), {"execute_command": traced})
    patched = kind()
    patched.execute_command = returning(patched.execute_command)
    return [overriding(), tracing(), patched, Wrapper(client)]


@pytest.mark.parametrize("client", dressed(ASYNC))
def test_an_asyncio_client_may_have_a_plain_function_return_the_awaitable(client: Any) -> None:
    asynchronous()("x", client=client)
    redis_lock("x", client=client)(later)
    Locks(client=client)
    refuse_unfit(client, awaited=True)
    told("asyncio client, but this", lambda: RedisLock("x", client=client))
    told("asyncio client, but this", lambda: refuse_unfit(client, awaited=False))


@pytest.mark.parametrize("client", dressed(BLOCKING))
def test_a_blocking_client_with_a_function_of_its_own_is_known(client: Any) -> None:
    RedisLock("x", client=client)
    refuse_unfit(client, awaited=False)
    told("blocking client, but this", lambda: asynchronous()("x", client=client))
    told("blocking client, but this", lambda: refuse_unfit(client, awaited=True))


def test_a_method_that_a_tracer_replaced_in_the_library_is_seen_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client(aredis.Redis):  # type: ignore[name-defined,misc]
        """Made now, for the answer about a class is kept."""

    monkeypatch.setattr(aredis.Redis, "execute_command", returning(aredis.Redis.execute_command))

    asynchronous()("x", client=Client())
    told("asyncio client, but this", lambda: RedisLock("x", client=Client()))


def test_a_wrapper_that_has_no_pool_yet_is_checked_at_its_use() -> None:
    class Later:
        client: Any = None

        @property
        def connection_pool(self) -> Any:
            return self.client.connection_pool

        def execute_command(self, *args: Any, **options: Any) -> Any: ...

    wrapper = Later()
    asynchronous()("x", client=wrapper)
    lock = RedisLock("x", client=wrapper)

    wrapper.client = ASYNC
    told("asyncio client", lock.acquire)
