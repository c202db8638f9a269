"""What is no client, or one of the other world, is told where it is given, with the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_decorators import ConfigurationError, Locks, RedisLock, acquire_lock, redis_lock
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
