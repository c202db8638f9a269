"""Every public name, used as its types promise; checked by mypy, not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import redis

from redis_lock_decorators import (
    ConfigurationError,
    Lease,
    LockError,
    LockLostError,
    LockNameError,
    LockNotOwnedError,
    Locks,
    LockTimeoutError,
    RedisLock,
    acquire_lock,
    configure,
    current_lease,
    extend_lock,
    redis_lock,
    release_lock,
)

conn = redis.Redis()


def connect() -> redis.Redis:
    return conn


configure(get_redis_connection=connect, prefix="shop:", expire=30, acquire_time=None, delta=0.01)
configure(auto_renew=False, max_hold=60, min_hold=None, fencing=True, replicas=1)
configure(wait="cohort")
configure(owner_info=lambda: {"job": "nightly"})
configure(on_lost=lambda lease, why: print(lease.lock_name, why), cancel_on_lost=False)
billing = Locks(get_redis_connection=connect, prefix="billing:", release_method="native")

identifier: str | Literal[False] = acquire_lock(conn, "x", 10, 10, 0.005, identifier="me")
if identifier:
    extended: bool = extend_lock(conn, "x", identifier, 10, prefix="p:")
    released: bool = release_lock(conn, "x", identifier, method="transaction")


@redis_lock
def bare(n: int) -> str:
    return str(n)


@redis_lock("order:{order_id}", expire=30, on_busy="skip")
def by_template(order_id: int, *, step: str = "a") -> list[int]:
    return [order_id]


@billing.redis_lock(get_lock_name=lambda n: f"n:{n}", on_busy=lambda n: n)
def by_callable(n: int) -> int:
    return n


@redis_lock(["acct:{src}", "acct:{dst}"])
def steps(src: int, dst: int) -> Iterator[int]:
    yield src


class Store:
    @redis_lock("stock:{self}:{sku}")
    def sell(self, sku: str) -> float:
        return 1.0

    @classmethod
    @redis_lock("{cls}")
    def make(cls) -> Store:
        return cls()

    @staticmethod
    @redis_lock()
    def count(sku: str) -> int:
        return 1


texts: str = bare(1)
numbers: list[int] | None = by_template(1, step="b")
number: int = by_callable(1)
iterator: Iterator[int] = steps(1, 2)
price: float = Store.make().sell("x")
counted: int = Store.count("x")

lock: RedisLock = billing.lock("x", expire=1.5)
several = RedisLock(["a", b"b"], acquire_time=0, client=conn)
with lock as lease:
    held: Lease = lease
    client_state: tuple[str, tuple[str, ...], str, str] = (
        held.lock_name,
        held.lock_names,
        held.key,
        held.identifier,
    )
    seconds: tuple[float, float, float] = (held.expire, held.deadline, held.remaining())
    flags: tuple[bool, bool, Literal[True]] = (held.lost, held.owned(), held.extend(5))
    held.check()
    held.release()

maybe: Lease | None = several.acquire(acquire_time=1, blocking=False)
current: Lease | None = current_lease()
locked: bool = several.locked()
owner: str | None = several.owner()
result: str = several.call(bare, 1)

try:
    pass
except LockTimeoutError as error:
    details: tuple[float, str | None, float | None] = (error.waited, error.holder, error.free_in)
except (LockLostError, LockNotOwnedError) as error:
    holder: str | None = error.holder
except (LockNameError, ConfigurationError, LockError) as error:
    name: str | None = error.lock_name
