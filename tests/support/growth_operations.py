"""The public ways to hold a lock, for tests that use each of them many times.

For a new public name, add an operation to ``OPERATIONS``: it is then tested with all endings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

import redis_lock_decorators
from redis_lock_decorators import Locks, LockTimeoutError
from support.fronts import do

#: The expire of a lock that is released, in seconds.
LONG = 3.0


@dataclass(frozen=True)
class Use:
    """One use of a lock.

    Attributes:
        front: blocking or asyncio.
        client: a client of that front.
        server: the server or proxy of ``client``.
        direct: a client for checks and for faults.
    """

    front: Any
    client: Any
    server: Any
    direct: redis.Redis
    name: str
    wait: float = 10.0
    expire: float = LONG

    @property
    def key(self) -> str:
        return f"sys:lock:{self.name}"

    @property
    def is_async(self) -> bool:
        return bool(self.front.name == "asyncio")

    def new_client(self) -> Any:
        """A separate client for this use."""
        kind = redis.asyncio.Redis if self.is_async else redis.Redis
        return kind(host=self.server.host, port=self.server.port)


@dataclass(frozen=True)
class Operation:
    """How a lock is acquired and released; ``acquire`` returns None if it was not free in time."""

    names: tuple[str, ...]
    acquire: Callable[[Use], Awaitable[Any]]
    leave: Callable[[Use, Any], Awaitable[object]]


async def _release(use: Use, held: Any) -> None:
    await do(held.release())


def _leases(**options: Any) -> Operation:
    async def acquire(use: Use) -> Any:
        lock = use.front.package.RedisLock(
            use.name, client=use.client, expire=use.expire, acquire_time=use.wait, **options
        )
        return await do(lock.acquire())

    return Operation(("RedisLock", "Lease"), acquire, _release)


async def _acquire_several(use: Use) -> Any:
    names = [use.name, f"{use.name}:2", f"{use.name}:3"]
    lock = use.front.package.RedisLock(names, client=use.client, expire=use.expire)
    return await do(lock.acquire(use.wait))


async def _acquire_and_extend(use: Use) -> Any:
    lock = use.front.package.RedisLock(use.name, client=use.client, expire=use.expire)
    lease = await do(lock.acquire(use.wait))
    if lease is not None:
        await do(lease.extend(use.expire))
        assert await do(lease.owned())
        assert await do(lock.locked())
    return lease


async def _enter(use: Use) -> Any:
    lock = use.front.package.RedisLock(
        use.name, client=use.client, expire=use.expire, acquire_time=use.wait
    )
    try:
        if use.is_async:
            await lock.__aenter__()
        else:
            lock.__enter__()
    except LockTimeoutError:
        return None
    assert use.front.package.current_lease() is not None
    return lock


async def _leave(use: Use, lock: Any) -> None:
    await do(lock.__aexit__(*[None] * 3) if use.is_async else lock.__exit__(*[None] * 3))


async def _call(use: Use) -> Any:
    decorate = redis_lock_decorators.redis_lock(
        "{name}", client=use.client, expire=use.expire, acquire_time=use.wait, on_busy="skip"
    )

    if use.is_async:

        @decorate
        async def async_work(name: str) -> str:
            return name

        return await async_work(use.name)

    @decorate
    def work(name: str) -> str:
        return name

    return work(use.name)


async def _is_over(use: Use, done: object) -> None:
    """Do nothing: the lock was released when the call ended."""


async def _step(use: Use) -> Any:
    locks = Locks(expire=use.expire, acquire_time=use.wait)
    decorate = locks.redis_lock("{name}", client=use.client)

    async def async_steps(name: str) -> Any:
        yield name

    def steps(name: str) -> Any:
        yield name

    generator = decorate(async_steps if use.is_async else steps)(use.name)
    try:
        if use.is_async:
            await generator.__anext__()
        else:
            next(generator)
    except LockTimeoutError:
        return None
    return generator


async def _close(use: Use, generator: Any) -> None:
    await do(generator.aclose() if use.is_async else generator.close())


async def _acquire_by_locks(use: Use) -> Any:
    hook: Any = partial(_same, use.client)
    other = "get_async_redis_connection" if use.is_async else "get_redis_connection"
    locks = Locks(**{other: hook}, expire=use.expire)
    locks.configure(acquire_time=use.wait)
    return await do((locks.async_lock if use.is_async else locks.lock)(use.name).acquire())


def _same(client: Any) -> Any:
    return client


async def _acquire_by_functions(use: Use) -> Any:
    package = use.front.package
    identifier = await do(package.acquire_lock(use.client, use.name, use.wait, use.expire))
    if not identifier:
        return None
    assert await do(package.extend_lock(use.client, use.name, identifier, use.expire))
    return identifier


async def _acquire_unreleased(use: Use) -> Any:
    package = use.front.package
    return await do(package.acquire_lock(use.client, use.name, use.wait, use.expire)) or None


async def _release_by_function(use: Use, identifier: Any) -> None:
    await do(use.front.package.release_lock(use.client, use.name, identifier))


async def _release_by_force(use: Use, _: Any) -> None:
    await do(use.front.package.force_release(use.name, client=use.client))


def _drop_ins(token: bool = False, **options: Any) -> Operation:
    async def acquire(use: Use) -> Any:
        from redis_lock_decorators.asyncio.lock import Lock as AsyncLock
        from redis_lock_decorators.lock import Lock

        lock = (AsyncLock if use.is_async else Lock)(
            use.client, use.key, timeout=use.expire, blocking_timeout=use.wait, **options
        )
        own = {"token": f"token of {use.name}"} if token else {}
        return lock if await do(lock.acquire(**own)) else None

    return Operation(("Lock",), acquire, _release)


OPERATIONS = {
    "lease": _leases(),
    "lease in a cohort": _leases(wait="cohort"),
    "polled lease": _leases(wait="poll"),
    "lease with a fence": _leases(fencing=True),
    "lease with min_hold": _leases(min_hold=0.01),
    "lease with max_hold": _leases(max_hold=60.0),
    "lease with on_lost": _leases(on_lost=lambda lease, why: None),
    "lease that is not renewed": _leases(auto_renew=False),
    "lease with owner_info": _leases(owner_info=lambda: {"job": "growth"}),
    "transaction": _leases(release_method="transaction"),
    "lease of several": Operation(("RedisLock",), _acquire_several, _release),
    "extended lease": Operation(("RedisLock",), _acquire_and_extend, _release),
    "block": Operation(("RedisLock", "current_lease"), _enter, _leave),
    "function": Operation(("redis_lock",), _call, _is_over),
    "generator": Operation(("Locks", "redis_lock"), _step, _close),
    "project": Operation(("Locks", "configure"), _acquire_by_locks, _release),
    "functions": Operation(
        ("acquire_lock", "extend_lock", "release_lock"),
        _acquire_by_functions,
        _release_by_function,
    ),
    "lease released by force": Operation(
        ("force_release",), _acquire_unreleased, _release_by_force
    ),
    "drop-in": _drop_ins(),
    "drop-in with a token": _drop_ins(token=True),
    "renewed drop-in": _drop_ins(auto_renew=True),
    "shared drop-in": _drop_ins(thread_local=False),
}
