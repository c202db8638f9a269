"""Uses that both type checkers must refuse: each line with ``E:``, and no other."""

from __future__ import annotations

import redis
import redis.asyncio

import redis_lock_decorators.asyncio as locks_of_tasks
from redis_lock_decorators import Locks, RedisLock, acquire_lock, redis_lock, release_lock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.lock import Lock

conn = redis.Redis()
aconn = redis.asyncio.Redis()


@redis_lock("order:{order_id}")
def charge(order_id: int, *, note: str = "") -> str:
    return f"{order_id}{note}"


@redis_lock("order:{order_id}", on_busy="skip")
def skipped(order_id: int) -> str:
    return f"{order_id}"


class Store:
    @redis_lock("stock:{sku}")
    def sell(self, sku: str) -> int:
        return 1


class OtherStore(Store):
    def sell(self, sku: int) -> int:  # E: the overridden method takes a str
        return 1


charge("no")  # E: the argument is an int
charge(1, nope=2)  # E: there is no such argument
charge()  # E: an argument is missing
charge.lock_for("no")  # E: the argument is an int
charge.lock  # E: there is no such attribute
skipped(1).upper()  # E: it may be None
Store().sell(5)  # E: the argument is a str
Store().sell.lock_for("bolt")  # E: the first argument is the store
Store.sell.lock_for("bolt")  # E: the store is missing

RedisLock("x", timeout=3)  # E: there is no such option
RedisLock("x", wait="que")  # E: one of three words
RedisLock("x", expire="3")  # E: a number
RedisLock("x", lambda n: f"{n}")  # E: named twice
redis_lock("x", timeout=3)  # E: there is no such option
redis_lock("x", on_busy="wait")  # E: one of two words, or a function
Locks(lambda: conn, timeout=3)  # E: there is no such option
Locks(lambda: aconn)  # E: an asyncio client from the blocking hook
Locks(lambda: conn, lambda: conn)  # E: a blocking client from the asyncio hook
Locks(conn)  # E: a function that gives the client

RedisLock("x").acquire().release()  # E: it may be None
acquire_lock(conn, "x").upper()  # E: it may be False
release_lock(conn, "x", acquire_lock(conn, "x"))  # E: it may be False

acquire_lock("localhost", "x")  # E: no client
acquire_lock(redis.Redis, "x")  # E: the class of clients
acquire_lock(aconn, "x")  # E: an asyncio client
acquire_lock(redis.ConnectionPool(), "x")  # E: no client
RedisLock("x", client="redis://localhost")  # E: no client
RedisLock("x", client=redis.Redis)  # E: the class of clients
RedisLock("x", client=aconn)  # E: an asyncio client
RedisLock("x", get_redis_connection=lambda: aconn)  # E: an asyncio client
RedisLock("x", owner_info=lambda: 5)  # E: no mapping
RedisLock("x", owner_info=lambda name: {})  # E: it is called without arguments
RedisLock("x", conn)  # E: the client's place is client=
RedisLock(conn, "x")  # E: the client's place is client=
AsyncRedisLock("x", client=conn)  # E: a blocking client
AsyncRedisLock("x", client=redis.asyncio.Redis)  # E: the class of clients
redis_lock("x", client="redis://localhost")  # E: no client
redis_lock("x", client=redis.Redis)  # E: the class of clients
Lock("localhost", "x")  # E: no client
Lock(aconn, "x")  # E: an asyncio client


async def tasks() -> None:
    await locks_of_tasks.acquire_lock(conn, "x")  # E: a blocking client
    (await AsyncRedisLock("x").acquire()).lost  # E: it may be None
    with AsyncRedisLock("x"):  # E: async with
        pass
    async with RedisLock("x"):  # E: with
        pass
