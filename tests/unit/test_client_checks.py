"""Objects that are no clients, or of the wrong kind, are refused when they are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_decorators import ConfigurationError, Locks, RedisLock, acquire_lock, redis_lock
from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators.lock import Lock

aredis = pytest.importorskip("redis.asyncio")  # not in redis-py 3.5

BLOCKING, ASYNC = redis.Redis(), aredis.Redis()


def plain(n: int) -> None: ...


async def later(n: int) -> None: ...


def asynchronous() -> Any:
    from redis_lock_decorators import asyncio

    return asyncio.RedisLock


def refused(words: str, work: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        work()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["redis://:secret@localhost", 42, object(), b"x"])
@pytest.mark.parametrize("kind", [RedisLock, asynchronous(), redis_lock, Locks().lock])
def test_object_that_is_no_client_is_refused(kind: Any, wrong: Any) -> None:
    refused("is no Redis client: .*give one, as in redis", lambda: kind("x", client=wrong))
    refused("is no Redis client: .*give one, as in redis", lambda: Lock(wrong, "x"))
    refused("is no Redis client: .*give one, as in redis", lambda: acquire_lock(wrong, "x"))


@pytest.mark.parametrize("wrong", [redis.Redis, aredis.Redis, redis.cluster.RedisCluster])
@pytest.mark.parametrize("kind", [RedisLock, asynchronous(), redis_lock, Locks().lock])
def test_class_of_clients_is_refused(kind: Any, wrong: Any) -> None:
    refused(f"{wrong.__name__} is a class: give an instance", lambda: kind("x", client=wrong))
    refused(f"{wrong.__name__} is a class", lambda: Lock(wrong, "x"))
    refused(f"{wrong.__name__} is a class", lambda: acquire_lock(wrong, "x"))
    lock = RedisLock("x", get_redis_connection=lambda: wrong)
    refused(f"{wrong.__name__} is a class", lock.acquire)


def test_sentinel_is_refused() -> None:
    sentinel = redis.sentinel.Sentinel([("localhost", 1)])

    refused("master_for", lambda: RedisLock("x", client=sentinel))
    refused("master_for", lambda: acquire_lock(sentinel, "x"))


@pytest.mark.parametrize("make", [redis.Redis.pipeline, redis.Redis.pubsub])
def test_pipeline_and_pubsub_are_refused(make: Any) -> None:
    made = make(redis.Redis())

    refused("give the client", RedisLock("x", client=made).acquire)
    refused("give the client", RedisLock("x", get_redis_connection=lambda: made).acquire)
    refused("give the client", lambda: acquire_lock(made, "x"))


def test_client_of_the_wrong_kind_is_refused() -> None:
    for work in (
        lambda: RedisLock("x", client=ASYNC),
        lambda: Locks().lock("x", client=ASYNC),
        lambda: redis_lock("x", client=ASYNC)(plain),
        lambda: redis_lock(plain, client=ASYNC),
        lambda: Lock(ASYNC, "x"),
        lambda: acquire_lock(ASYNC, "x"),
    ):
        refused("asyncio client, but this code needs a blocking one: .*asyncio", work)
    for work in (
        lambda: asynchronous()("x", client=BLOCKING),
        lambda: Locks().async_lock("x", client=BLOCKING),
        lambda: redis_lock("x", client=BLOCKING)(later),
    ):
        refused("blocking client, but this code needs an asyncio one: .*redis.asyncio", work)


@pytest.mark.parametrize("client", [BLOCKING, ASYNC, redis.Redis])
def test_client_in_place_of_a_name_is_refused(client: Any) -> None:
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
        refused("where a lock's name belongs: .*client=client", work)


def test_extension_without_a_client_is_checked_when_used() -> None:
    class Extension:
        client: Any = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

    extension = Extension()
    lock, decorated = RedisLock("x", client=extension), redis_lock("x", client=extension)(plain)

    refused("no Redis client", lock.acquire)
    refused("no Redis client", lambda: decorated(1))
    extension.client = ASYNC
    refused("asyncio client", lock.acquire)


def test_async_factory_is_refused() -> None:
    async def connect() -> Any:
        return ASYNC

    refused("give a plain one", RedisLock("x", get_redis_connection=connect).acquire)


def returning(execute: Any) -> Any:
    """A tracer's plain function, which returns the result of the method."""
    return lambda *args, **options: execute(*args, **options)


class Wrapper:
    """A program's wrapper of a client, whose pool shows the kind of the client."""

    def __init__(self, client: Any) -> None:
        self.connection_pool = client.connection_pool
        self.execute_command = returning(client.execute_command)

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


def wrapped(client: Any) -> list[Any]:
    """Clients whose ``execute_command`` is a plain function, which may return awaitables."""
    kind = type(client)
    overriding = type("Overriding", (kind,), {"execute_command": returning(kind.execute_command)})
    traced = functools.wraps(kind.execute_command)(returning(kind.execute_command))
    tracing = type("Tracing", (kind,), {"execute_command": traced})
    patched = kind()
    patched.execute_command = returning(patched.execute_command)
    return [overriding(), tracing(), patched, Wrapper(client)]


@pytest.mark.parametrize("client", wrapped(ASYNC))
def test_asyncio_client_with_a_plain_execute_command_is_known(client: Any) -> None:
    asynchronous()("x", client=client)
    redis_lock("x", client=client)(later)
    Locks(client=client)
    refuse_unfit_client(client, awaited=True)
    refused("asyncio client, but this", lambda: RedisLock("x", client=client))
    refused("asyncio client, but this", lambda: refuse_unfit_client(client, awaited=False))


@pytest.mark.parametrize("client", wrapped(BLOCKING))
def test_blocking_client_with_a_replaced_method_is_known(client: Any) -> None:
    RedisLock("x", client=client)
    refuse_unfit_client(client, awaited=False)
    refused("blocking client, but this", lambda: asynchronous()("x", client=client))
    refused("blocking client, but this", lambda: refuse_unfit_client(client, awaited=True))


def test_asyncio_class_patched_by_a_tracer_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client(aredis.Redis):  # type: ignore[name-defined,misc]
        """A new class, as results are cached by class."""

    monkeypatch.setattr(aredis.Redis, "execute_command", returning(aredis.Redis.execute_command))

    asynchronous()("x", client=Client())
    refused("asyncio client, but this", lambda: RedisLock("x", client=Client()))


def test_wrapper_without_a_pool_is_checked_when_used() -> None:
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
    refused("asyncio client", lock.acquire)
