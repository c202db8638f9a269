"""Uses that both type checkers must accept; they are not run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Generator, Hashable, Iterator, Sequence
from typing import Any, AnyStr, TypeVar

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

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

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


# Methods


class Store:
    warehouse = "north"

    @billing.redis_lock("stock:{self.warehouse}:{sku}", on_busy="skip", acquire_time=0)
    def recount(self, sku: str) -> int:
        return 1

    @redis_lock
    def by_self(self, sku: str) -> int:
        return 1

    @redis_lock("a:{x}")
    async def fetch(self, x: int) -> float:
        return 1.0

    @classmethod
    @redis_lock("c:{cls.__name__}")
    def under_class(cls, a: int) -> str:
        return ""

    @redis_lock("c:{cls.__name__}")
    @classmethod
    def over_class(cls, a: int) -> str:
        return ""

    @staticmethod
    @redis_lock("s:{a}")
    def under_static(a: int) -> str:
        return ""

    @redis_lock("s:{a}")
    @staticmethod
    def over_static(a: int) -> str:
        return ""

    @property
    @redis_lock("p")
    def level(self) -> int:
        return 1


class SubStore(Store):
    def recount_all(self) -> int | None:
        assert_type(super().recount("bolt"), int | None)
        return self.recount("bolt")


store = Store()
assert_type(store.recount("bolt"), int | None)
assert_type(store.recount(sku="bolt"), int | None)
assert_type(store.by_self("bolt"), int)
assert_type(SubStore().recount("bolt"), int | None)
assert_type(Store.recount(store, "bolt"), int | None)
assert_type(Store.recount.lock_for(store, "bolt"), RedisLock)
assert_type(Store.fetch.lock_for(store, 1), AsyncRedisLock)
assert_type(Store.under_class(1), str)
assert_type(store.under_class(1), str)
assert_type(SubStore.over_class(1), str)
assert_type(store.over_class(1), str)
assert_type(Store.under_static(1), str)
assert_type(store.under_static(1), str)
assert_type(Store.over_static(1), str)
assert_type(store.over_static(1), str)
assert_type(store.level, int)


# Overridden methods, which pyright compares before they are bound to an object.


class PlainStore(Store):
    def recount(self, sku: str) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return super().recount(sku)

    async def fetch(self, x: int) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return await super().fetch(x)


class LockedStore(Store):
    @redis_lock("stock:{sku}")  # its calls never give None
    def recount(self, sku: str) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return super().recount(sku) or 0


class Work:
    def run(self, n: int) -> int:
        raise NotImplementedError

    async def run_later(self, n: int) -> int:
        raise NotImplementedError


class LockedWork(Work):
    @redis_lock("work:{n}")
    def run(self, n: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return n

    @redis_lock("work:{n}")
    async def run_later(self, n: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return n


assert_type(PlainStore().recount("bolt"), int | None)
assert_type(LockedStore().recount("bolt"), int)
assert_type(LockedWork().run(1), int)


# Functions without annotations accept any arguments.


class Untyped:
    @redis_lock("x:{n}", on_busy="skip")
    def work(self, n):  # type: ignore[no-untyped-def]
        return n


@redis_lock
def untyped(n):  # type: ignore[no-untyped-def]
    return n


untyped(1)
untyped.lock_for(1).locked()
Untyped().work(1)
Untyped.work(Untyped(), 1)
Untyped.work.lock_for(Untyped(), 1)
Store.under_class.lock_for(Store, 1)


# Generic functions; mypy knows the result if more than a type variable is returned.


@redis_lock("first:{n}")
def first(n: int, items: Sequence[T]) -> T:
    return items[n]


@redis_lock("first:{n}", on_busy="skip")
def skipped_first(n: int, items: Sequence[T]) -> T:
    return items[n]


@redis_lock("first:{n}", on_busy=lambda n, items: n)
def answered_first(n: int, items: Sequence[T]) -> T:
    return items[n]


@redis_lock("first:{n}")
async def async_first(n: int, items: Sequence[T]) -> T:
    return items[n]


@redis_lock("only:{n}", on_busy="skip")
def only(n: int, items: Sequence[T]) -> list[T]:
    return [items[n]]


def fallback_of(thing: T) -> T:
    return thing


@redis_lock
def same(thing: Key) -> Key:
    return thing


@redis_lock("text:{text}")
def same_text(text: AnyStr) -> AnyStr:
    return text


class Shelf:
    @redis_lock("shelf:{key}")
    def get(self, key: str, default: T) -> T:
        return default

    @classmethod
    @redis_lock("shelf:{key}")
    def of_class(cls, key: str, default: T) -> T:
        return default

    @staticmethod
    @redis_lock("shelf:{key}")
    def of_nothing(key: str, default: T) -> T:
        return default


async def generic() -> None:
    number: int = first(0, [1])
    maybe: int | None = skipped_first(0, [1])
    answer: int | str = answered_first(0, ["x"])
    number = Shelf().get("a", 1)
    number = Shelf.of_class("a", 1)
    number = Shelf.of_nothing("a", 1)
    number = same(1)
    number = redis_lock(fallback_of, expire=3)(1)
    text: bytes = same_text(b"")
    print(number, maybe, answer, text)
    assert_type(first.lock_for(0, [1]), RedisLock)
    assert_type(await async_first(0, [1]), int)
    assert_type(only(0, [1]), list[int] | None)


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
