"""The uses of a lock that need different permissions."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redis_lock_decorators import LockNameError, LockUnconfirmedError
from redis_lock_decorators._rules import permissions
from redis_lock_decorators.inspection import find_locks, lock_status, waiters
from support.fronts import do, wrap
from support.limited import Place

PREFIX = "sys:lock:"
#: A use of a lock: called with a front, a client and the lock's name.
Work = Callable[[Any, Any, str], Awaitable[None]]


def hold(**options: Any) -> Work:
    """Hold a lock whose lease is renewed and extended."""

    async def work(front: Any, client: Any, name: str) -> None:
        lock = front.package.RedisLock(name, client=client, expire=0.4, **options)
        async with front.held(lock) as lease:
            await front.sleep(0.3)
            assert await do(lease.extend(5))
            assert await do(lease.owned())

    return work


def wait(names: int = 1, holds: float = 0.1, **options: Any) -> Work:
    """Hand off a lock between several waiters, one of which gives up."""

    async def work(front: Any, client: Any, name: str) -> None:
        lock_name = [f"{{{name}}}:{number}" for number in range(names)] if names > 1 else name
        lock = front.package.RedisLock(lock_name, client=client, **options)

        async def one() -> None:
            async with front.held(lock):
                await front.sleep(holds)

        async def impatient() -> None:
            await front.sleep(0.02)
            lease = await do(lock.acquire(0.02))
            if lease is not None:
                await do(lease.release())

        assert await front.elsewhere(one, one, impatient, one) == [None] * 4

    return work


def recipe(method: str | None) -> Work:
    """Use the three functions."""

    async def work(front: Any, client: Any, name: str) -> None:
        package = front.package
        identifier = await do(package.acquire_lock(client, name))
        assert await do(package.extend_lock(client, name, identifier, 5))
        assert await do(package.release_lock(client, name, identifier, method=method))
        assert await do(package.release_lock(client, name, identifier, method=method))

    return work


async def release_other_data(front: Any, client: Any, name: str) -> None:
    """Release a key that holds no lock by a transaction."""
    await do(client.hset(f"{PREFIX}{name}", "field", "other data"))
    with pytest.raises(LockNameError, match="other data"):
        await do(front.package.release_lock(client, name, "identifier", method="transaction"))


def drop_in(front: Any) -> Any:
    """The class that replaces redis-py's ``Lock``."""
    home = "asyncio.lock" if front.name == "asyncio" else "lock"
    return importlib.import_module(f"redis_lock_decorators.{home}").Lock


async def redispy_lock(front: Any, client: Any, name: str) -> None:
    """Use the drop-in for redis-py's ``Lock``."""
    kind = drop_in(front)
    for timeout in (3, None):
        lock = kind(client, f"{PREFIX}{name}", timeout=timeout)
        assert await do(lock.acquire())
        assert await do(lock.owned())
        if timeout:
            await do(lock.extend(2))
            await do(lock.reacquire())
        await do(lock.release())


async def replicated(front: Any, client: Any, name: str) -> None:
    """Acquire a lock that no replica confirms."""
    lock = front.package.RedisLock(name, client=client, replicas=1)
    with pytest.raises(LockUnconfirmedError):
        await do(lock.acquire(0))


async def repeated(front: Any, client: Any, name: str) -> None:
    """Use a lock of a wrapped client, which resends requests on its own."""
    wrap(client)
    await hold()(front, client, name)


async def inspect(front: Any, client: Any, name: str) -> None:
    """Read the state of a lock."""
    async with front.held(front.package.RedisLock(name, client=client)):
        pages = find_locks(client, name)
        assert [status.lock_name for page in pages for status in page] == [name]
        assert lock_status(client, name).is_held
        assert waiters(client, name) == []


EVERY, QUEUE, FENCES, LEAST, REPLICAS, DROP_INS, TRANSACTION, *OTHERS = permissions.RIGHTS


NATIVE, INSPECTION, REPEATS, CLUSTER = OTHERS


#: For each use: the other uses it includes, and the works that exercise it.
WORKS: dict[str, tuple[tuple[str, ...], list[Work]]] = {
    EVERY: (
        (),
        [
            *(hold(wait="poll"), hold(), wait(wait="poll"), wait(names=2), recipe("script")),
            *(hold(owner_info=True), wait(wait="poll", owner_info=True)),
        ],
    ),
    QUEUE: (
        (),
        [
            *(wait(), wait(wait="cohort"), wait(auto_renew=False), wait(owner_info=True)),
            *(wait(holds=0.6, expire=0.5), wait(wait="cohort", holds=0.6, expire=0.5)),
        ],
    ),
    FENCES: ((QUEUE,), [hold(fencing=True), wait(fencing=True)]),
    LEAST: ((QUEUE,), [hold(min_hold=0.1), wait(min_hold=0.3)]),
    REPLICAS: ((), [replicated]),
    DROP_INS: ((), [redispy_lock]),
    TRANSACTION: (
        (FENCES,),
        [
            *(recipe("transaction"), recipe(None), hold(release_method="transaction")),
            release_other_data,
        ],
    ),
    f"{TRANSACTION}, queued": (
        (TRANSACTION, QUEUE, LEAST),
        [
            wait(release_method="transaction"),
            wait(release_method="transaction", min_hold=0.1),
        ],
    ),
    NATIVE: ((), [recipe("native"), hold(release_method="native")]),
    f"{NATIVE}, queued": ((NATIVE, QUEUE), [wait(release_method="native")]),
    INSPECTION: ((), [inspect]),
    REPEATS: ((), [repeated]),
    CLUSTER: ((), [hold(), hold()]),
}
#: Uses that a cluster does not have.
ALONE = [use for use in WORKS if use.startswith((TRANSACTION, NATIVE))] + [REPEATS]


def uses_of(place: Place, use: str) -> tuple[str, ...]:
    """The permissions that a user of this needs."""
    own = (use,) if use in permissions.RIGHTS else ()
    return (*own, *WORKS[use][0], *((CLUSTER,) if place.is_cluster else ()))


def skip_unsupported(place: Place, use: str, front: Any) -> None:
    if use == INSPECTION and front.name == "asyncio":
        pytest.skip("it takes blocking clients only")
    if use in ALONE if place.is_cluster else use == CLUSTER:
        pytest.skip("this kind of client has no such use")
