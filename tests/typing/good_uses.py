"""Uses that both type checkers must accept; they are not run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import redis
import redis.asyncio
from redis.asyncio import RedisCluster as AsyncRedisCluster
from typing_extensions import assert_type

import redis_lock_decorators.asyncio as locks_of_tasks
from redis_lock_decorators import Lease, Locks, RedisLock, acquire_lock, redis_lock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.asyncio.lock import Lock as AsyncLock
from redis_lock_decorators.lock import Lock
from redis_lock_decorators.testing import LocalServer

conn = redis.Redis()
aconn = redis.asyncio.Redis()
billing = Locks(lambda: conn, lambda: aconn, prefix="billing:", wait="cohort")


# Functions


def fallback(x: int) -> str:
    return str(x)


@redis_lock("order:{order_id}", expire=30, acquire_time=5)
def charge(order_id: int, *, note: str = "") -> str:
    return f"{order_id}{note}"


@redis_lock
def bare(x: int) -> int:
    return x


@redis_lock()
def empty(x: int) -> int:
    return x


assert_type(charge(1, note="x"), str)
assert_type(charge(order_id=1), str)
assert_type(charge.lock_for(1), RedisLock)
assert_type(charge.lock_for(order_id=1).locked(), bool)
assert_type(charge.__name__, str)
assert_type(charge.__wrapped__(1, note="x"), Any)
assert_type(bare(1), int)
assert_type(empty(1), int)
assert_type(redis_lock(fallback, expire=3)(1), str)
assert_type(redis_lock(fallback, expire=3).lock_for(1).owner(), str | None)
assert_type(redis_lock("p:{order_id}")(functools.partial(charge, 3))(), str)


@redis_lock("x", on_busy="skip", acquire_time=0)
def skipped(x: int) -> int:
    return x


@redis_lock("x", on_busy=fallback)
def answered(x: int) -> int:
    return x


@redis_lock("x", on_busy=lambda x: x)
def answered_by_lambda(x: int) -> int:
    return x


assert_type(skipped(1), int | None)
assert_type(skipped.lock_for(1), RedisLock)
assert_type(answered(1), int | str)
assert_type(answered_by_lambda.lock_for(1), RedisLock)


# Generators


@redis_lock("steps:{n}")
def steps(n: int) -> Iterator[int]:
    yield n


@redis_lock("steps:{n}", on_busy="skip")
def skipped_steps(n: int) -> Generator[int, str, bytes]:
    yield n
    return b""


@redis_lock("steps:{n}")
async def async_steps(n: int) -> AsyncIterator[int]:
    yield n


assert_type(steps(1), Iterator[int])
assert_type(skipped_steps(1), Generator[int, str, bytes])
assert_type(async_steps(1), AsyncIterator[int])
assert_type(async_steps.lock_for(1), AsyncRedisLock)


# Async functions


@redis_lock("mail:{user}")
async def send(user: str) -> bytes:
    return user.encode()


@redis_lock("mail:{user}", on_busy="skip")
async def skipped_send(user: str) -> bytes:
    return user.encode()


async def later(user: str) -> int:
    return len(user)


@redis_lock("mail:{user}", on_busy=later)
async def answered_send(user: str) -> bytes:
    return user.encode()


@redis_lock("mail:{user}", on_busy=len)
async def plainly_answered_send(user: str) -> bytes:
    return user.encode()


async def tasks() -> None:
    assert_type(await send("ann"), bytes)
    assert_type(await send.lock_for("ann").locked(), bool)
    assert_type(await skipped_send("ann"), bytes | None)
    assert_type(await answered_send("ann"), bytes | int)
    assert_type(await plainly_answered_send("ann"), bytes | int)
    async for n in async_steps(1):
        assert_type(n, int)
    lock = AsyncRedisLock("digest", client=aconn)
    async with lock as lease:
        assert_type(lease, locks_of_tasks.Lease)
    assert_type(await lock.acquire(), locks_of_tasks.Lease | None)
    assert_type(await lock.acquire(None), locks_of_tasks.Lease)
    assert_type(await lock.call(send, "ann"), bytes)
    identifier = await locks_of_tasks.acquire_lock(aconn, "x", None)
    assert_type(identifier, str)
    assert_type(await locks_of_tasks.release_lock(aconn, "x", identifier), bool)
    assert_type(billing.async_lock("x", client=aconn), AsyncRedisLock)


# Locks and leases

lock = RedisLock("report", client=conn, wait="poll", on_lost=lambda lease, why: print(why))
assert_type(lock.acquire(), Lease | None)
assert_type(lock.acquire(3, blocking=False), Lease | None)
assert_type(lock.acquire(None), Lease)
assert_type(lock.acquire(acquire_time=None, blocking=True), Lease)
assert_type(lock.call(charge, 1, note="x"), str)
assert_type(acquire_lock(conn, "x", acquire_time=None), str)
RedisLock(get_lock_name=lambda n: f"n:{n}", get_redis_connection=redis.Redis, fencing=True)
RedisLock(["a", b"b"], None, 10, 10)
RedisLock("a", owner_info=True)
RedisLock("a", owner_info=lambda: {"job": 5})
assert_type(lock.owner_info(), dict[str, Any] | None)
billing.configure(expire=3, get_async_redis_connection=lambda: aconn)


# Clients


class Wrapper:
    """A user's own client."""

    def __init__(self, client: redis.Redis) -> None:
        self.connection_pool = client.connection_pool
        self.client = client

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return self.client.get("x")


class AsyncWrapper:
    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.connection_pool = client.connection_pool
        self.client = client

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        return await self.client.get("x")


def clients(cluster: redis.RedisCluster, async_cluster: AsyncRedisCluster) -> None:
    acquire_lock(cluster, "x")
    acquire_lock(Wrapper(conn), "x")
    RedisLock("x", client=cluster)
    RedisLock("x", client=Wrapper(conn))
    Locks(lambda: Wrapper(conn), lambda: AsyncWrapper(aconn))
    AsyncRedisLock("x", client=async_cluster)
    AsyncRedisLock("x", client=AsyncWrapper(aconn))
    AsyncRedisLock("x", get_redis_connection=redis.asyncio.Redis)
    redis_lock("x", client=async_cluster)
    redis_lock("x", get_redis_connection=lambda: conn)


Lock(conn, "x", timeout=3).owned()
conn.lock("invoice", timeout=3, lock_class=Lock)
AsyncLock(aconn, "x", timeout=3)
with LocalServer() as server:
    acquire_lock(server.client(), "x")
