"""Errors are in no reference cycle with our frames, so what these refer to is freed at once.

A cycle would keep a block alive that a signal handler's exception has left, and the objects of the
program, until the garbage collector runs.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from support.fronts import do

from redis_lock_decorators import LockError, RedisLock, lock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.asyncio import lock as async_lock

KEY = "sys:lock:report"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"release_method": "native"},
    {"release_method": "transaction"},
    {"wait": "cohort"},
    {"wait": "poll"},
    {"fencing": True},
    {"replicas": 1},
]
ERRORS = (LockError, redis.RedisError)
CLIENTS: dict[Any, Any] = {
    RedisLock: redis.Redis.from_url,
    AsyncRedisLock: aioredis.Redis.from_url,
    lock.Lock: redis.Redis.from_url,
    async_lock.Lock: aioredis.Redis.from_url,
}


def errors() -> list[BaseException]:
    """All exceptions that exist."""
    return [found for found in gc.get_objects() if issubclass(type(found), BaseException)]


def cycles(known: set[int]) -> set[str]:
    """Where a frame of ours refers to an exception whose traceback refers to the frame.

    Not the exceptions whose ``id`` is ``known``: other tests keep them.
    """
    found = set()
    for error in errors():
        trace = None if id(error) in known else error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_globals["__name__"].startswith("redis_lock_decorators."):
                for name, value in list(frame.f_locals.items()):
                    values = value if type(value) in (list, tuple) else [value]
                    if any(item is error for item in values):
                        found.add(f"{frame.f_code.co_filename}:{trace.tb_lineno}: {name}")
            trace = trace.tb_next
    return found


@pytest.fixture
def known(direct: redis.Redis) -> set[int]:
    """The ``id`` of each exception that exists before a test."""
    return set(map(id, errors()))


@pytest.fixture
def direct(server: Any) -> Iterator[redis.Redis]:
    """A client for faults; the garbage collector does not run meanwhile."""
    with server.client() as client:
        client.flushall()
        gc.collect()
        gc.disable()
        yield client
        gc.enable()
        client.config_set("maxmemory", 0)
        client.flushall()


async def use(lock: Any, direct: redis.Redis) -> None:
    """Hold a lock in each way that ends with an error."""
    direct.script_flush()
    for fault in (None, direct.flushall):
        with suppress(*ERRORS):
            await hold(lock, fault)
    direct.set(KEY, "another")
    with suppress(*ERRORS):
        await hold(lock)
    direct.delete(KEY)
    direct.lpush(KEY, "other data")
    with suppress(*ERRORS):
        await hold(lock)
    direct.flushall()
    direct.config_set("maxmemory", 1)
    with suppress(*ERRORS):
        await hold(lock)


async def hold(lock: Any, fault: Any = None) -> None:
    if not hasattr(lock, "__aenter__"):
        with lock as lease:
            if fault is not None:
                fault()
                lease.extend(5)
        return
    async with lock as lease:
        if fault is not None:
            fault()
            await lease.extend(5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_errors_of_a_lock(
    kind: Any, options: Any, server: Any, direct: redis.Redis, known: set[int]
) -> None:
    async def scene() -> None:
        client = CLIENTS[kind](server.url)
        await use(kind("report", client=client, expire=5, acquire_time=0.05, **options), direct)
        await do(getattr(client, "aclose", client.close)())

    asyncio.run(scene())

    assert cycles(known) == set()


@pytest.mark.parametrize("kind", [lock.Lock, async_lock.Lock])
def test_errors_of_the_redispy_lock(
    kind: Any, server: Any, direct: redis.Redis, known: set[int]
) -> None:
    async def scene() -> None:
        client = CLIENTS[kind](server.url)
        await use(kind(client, KEY, timeout=5, blocking_timeout=0.05), direct)
        await do(getattr(client, "aclose", client.close)())

    asyncio.run(scene())

    assert cycles(known) == set()


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_errors_of_an_unreachable_server(kind: Any, direct: redis.Redis, known: set[int]) -> None:
    async def scene() -> None:
        client = CLIENTS[kind]("redis://127.0.0.1:1")
        with suppress(*ERRORS):
            await hold(kind("report", client=client, acquire_time=0.05))

    asyncio.run(scene())

    assert cycles(known) == set()
