"""Counts of the package's objects in this process and on its server, and uses of the package.

``OPERATIONS`` are the public ways to hold a lock, ``ENDINGS`` the ways in which a use can end. For
a new public name, add an operation here: it is then tested with all endings.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import redis
from redis.exceptions import LockError

import redis_lock_decorators
from redis_lock_decorators import Locks, LockTimeoutError
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._shared import settings
from support.fronts import LEGACY, do
from support.leftovers import PATIENCE

#: The package whose objects are counted.
OURS = "redis_lock_decorators"
#: This many more of a kind are no growth: pooled connections, deferred clean-up.
SLACK = 20
#: The number of concurrent uses.
CONCURRENT = 10
#: The expire of a lock that is released, and of one that is not, in seconds.
LONG, SHORT = 3.0, 0.3


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


Ending = Callable[[Operation, Use], Awaitable[None]]

_numbers = itertools.count()


# Operations


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


# Endings of a use


async def released(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    assert held is not None
    await operation.leave(use, held)


async def lost(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    use.direct.delete(use.key)
    with suppress(LockError):
        await operation.leave(use, held)


async def abandoned(operation: Operation, use: Use) -> None:
    assert await operation.acquire(replace(use, expire=SHORT)) is not None


async def expired(operation: Operation, use: Use) -> None:
    use = replace(use, expire=SHORT)
    held = await operation.acquire(use)
    use.direct.delete(use.key)
    await use.front.sleep(0.05)  # renewed leases are reported lost, others expire
    assert held is not None


async def timed_out(operation: Operation, use: Use) -> None:
    use.direct.set(use.key, "another", px=60_000)
    assert await operation.acquire(replace(use, wait=0.02)) is None
    use.direct.delete(use.key)


async def handed_off(operation: Operation, use: Use) -> None:
    found = await use.front.elsewhere(*[partial(released, operation, use)] * 3)
    assert found == [None] * 3, found


async def left_by_another(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    with suppress(LockError):
        (error,) = await use.front.elsewhere(partial(operation.leave, use, held))
        if error is not None:  # only its holder may release it, for example by its own token
            assert isinstance(error, LockError), error
            await operation.leave(use, held)


async def acquired_by_another(operation: Operation, use: Use) -> None:
    """A thread or task acquires it and ends."""
    short = replace(use, expire=SHORT)
    (held,) = await use.front.elsewhere(partial(operation.acquire, short))
    assert held is not None
    assert not isinstance(held, BaseException), held


async def client_gone(operation: Operation, use: Use) -> None:
    client = use.new_client()
    await released(operation, replace(use, client=client))
    if use.is_async:
        await client.aclose()


async def cancelled(operation: Operation, use: Use) -> None:
    use.direct.set(use.key, "another", px=60_000)
    waiter = asyncio.ensure_future(operation.acquire(use))
    await asyncio.sleep(0.005)
    waiter.cancel()
    assert isinstance((await asyncio.gather(waiter, return_exceptions=True))[0], BaseException)
    use.direct.delete(use.key)


async def cancelled_inside(operation: Operation, use: Use) -> None:
    async def work() -> None:
        held = await operation.acquire(use)
        try:
            await asyncio.sleep(10)
        finally:
            await operation.leave(use, held)

    worker = asyncio.ensure_future(work())
    await asyncio.sleep(0.01)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def loop_closed(operation: Operation, use: Use) -> None:
    """An event loop is closed while a lock is held, after its client was closed."""

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            own = replace(use, client=use.new_client(), expire=SHORT)
            held = loop.run_until_complete(operation.acquire(own))
            loop.run_until_complete(own.client.aclose())
            loop.run_until_complete(asyncio.sleep(0))
            del held
        finally:
            loop.close()

    await asyncio.to_thread(run)


ENDINGS: tuple[Ending, ...] = (
    *(released, lost, abandoned, expired, timed_out, handed_off),
    *(left_by_another, acquired_by_another, client_gone),
)
#: Endings that only tasks have.
TASK_ENDINGS: tuple[Ending, ...] = () if LEGACY else (cancelled, cancelled_inside, loop_closed)


# Counts


@contextmanager
def no_records() -> Iterator[None]:
    """Disable logging: pytest keeps every record, with its error and everything it refers to."""
    logger = logging.getLogger(OURS)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


def counted(direct: redis.Redis) -> Counter[str]:
    """The counts of our objects by type, and of threads, descriptors, connections and keys."""
    _empty_caches()
    gc.collect()
    found = Counter(
        f"{type(one).__module__}.{type(one).__qualname__}"
        for one in gc.get_objects()
        if str(type(one).__module__).startswith(OURS)
    )
    found["threads"] = threading.active_count()
    found["descriptors"] = len(os.listdir("/dev/fd"))
    found["connections at the server"] = len(direct.client_list())
    found["keys"] = sum(
        not one.endswith((b":fence", b":released")) for one in direct.scan_iter(count=1000)
    )
    return found


def _empty_caches() -> None:
    """Empty the bounded caches."""
    settings._checked.cache_clear()
    for client_state in [one for one in gc.get_objects() if type(one) is ClientState]:
        for place, cohort in list(client_state.cohorts.items()):
            if cohort.is_idle():
                client_state.cohorts.pop(place, None)


def grown(before: Counter[str], direct: redis.Redis) -> dict[str, int]:
    """The counts that grew by more than ``SLACK``."""
    found = counted(direct) - before
    return {kind: more for kind, more in found.items() if more > SLACK}


async def settled(front: Any, before: Counter[str], direct: redis.Redis) -> dict[str, int]:
    """The same, after waiting for the counts to settle."""
    end = time.monotonic() + PATIENCE
    while (found := grown(before, direct)) and time.monotonic() < end:
        await front.sleep(0.2)
    return found


async def _repeat(use: Use, endings: tuple[Ending, ...], count: int) -> None:
    """Use each operation ``count`` times with each ending, each time on a new lock."""
    for ending, (name, operation) in itertools.product(endings, OPERATIONS.items()):
        for first in range(0, count, CONCURRENT):
            numbers = range(first, min(count, first + CONCURRENT))
            own = [replace(use, name=f"{use.name}:{next(_numbers)}") for _ in numbers]
            found = await use.front.elsewhere(*[partial(ending, operation, one) for one in own])
            failures = [one for one in found if one is not None]
            assert failures == [], f"{name}, {ending.__name__}: {failures}"


async def assert_nothing_is_left(
    front: Any, server: Any, endings: tuple[Ending, ...], count: int
) -> None:
    """Check that ``count`` uses of each operation with each ending leave nothing behind.

    The counts are compared with those after a few uses of each.
    """
    direct = server.client()
    use = Use(front, front.client(server), server, direct, f"growth:{front.name}")
    with no_records():
        # After this everything that is created once, such as connections and threads, exists.
        await _repeat(use, endings, CONCURRENT)
        await front.sleep(2.0)
        before = counted(direct)

        await _repeat(use, endings, count)

        found = await settled(front, before, direct)
    uses = count * len(OPERATIONS) * len(endings)
    assert found == {}, f"left after {uses} uses: {found}"
