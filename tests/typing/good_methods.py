"""Methods, and functions without types or with type variables, that type checkers must accept."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import AnyStr, TypeVar

import redis
import redis.asyncio
from typing_extensions import assert_type

from redis_lock_decorators import Locks, RedisLock, redis_lock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

conn = redis.Redis()
aconn = redis.asyncio.Redis()
billing = Locks(lambda: conn, lambda: aconn, prefix="billing:", wait="cohort")


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
