"""min_hold: how long a lock is held at least."""

from __future__ import annotations

import pytest
from support.blocks import elsewhere
from support.fronts import TIME, do
from support.lease_forms import in_function

from redis_lock_decorators import (
    ConfigurationError,
    LockNotOwnedError,
    Locks,
    LockTimeoutError,
    redis_lock,
)


@pytest.fixture
def make(front, conn, name):
    """A lock on the test's name."""

    def lock(lock_name=name, **options):
        return front.package.RedisLock(lock_name, client=conn, **options)

    return lock


async def test_min_hold_keeps_the_lock_after_a_short_block(front, client, make):
    started = TIME.now()

    async with front.held(make(min_hold=0.15)):
        pass
    next_one = await do(make(acquire_time=10).acquire())

    assert next_one is not None
    assert TIME.now() - started >= 0.15
    await do(next_one.release())


async def test_min_hold_counts_from_the_acquisition(front, client, name, make):
    async with front.held(make(min_hold=30)):
        await front.sleep(0.1)

    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 29_950
    client.delete(f"sys:lock:{name}")


async def test_block_longer_than_min_hold_releases_at_once(front, client, name, make):
    async with front.held(make(min_hold=0.05)):
        await front.sleep(0.06)

    assert not client.exists(f"sys:lock:{name}")


async def test_failed_body_releases_at_once_despite_min_hold(front, client, name, make):
    with pytest.raises(ValueError, match="own"):
        async with front.held(make(min_hold=30)):
            raise ValueError("own error of the body")

    assert not client.exists(f"sys:lock:{name}")


async def test_rest_of_min_hold_has_no_holder(front, client, name, make):
    lock, impatient = make(min_hold=30), make(acquire_time=0)
    lease = await do(lock.acquire())
    await do(lease.release())

    await do(lease.release())  # again, and nothing happens

    assert not await do(lease.owned())
    assert await do(lock.owner()) == lease.identifier  # min_hold blocks the lock after its release
    assert await do(impatient.acquire()) is None
    assert await elsewhere(front, impatient.acquire) is None
    assert await do(lock.acquire(acquire_time=0.02)) is None
    with pytest.raises(LockNotOwnedError, match="was released"):
        await do(lease.extend())
    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 30_000
    client.delete(f"sys:lock:{name}")


async def test_old_identifier_cannot_release_the_rest_of_min_hold(front, conn, client, name, make):
    lease = await do(make(min_hold=30).acquire())
    identifier = lease.identifier
    await do(lease.release())

    released = await do(front.package.release_lock(conn, name, identifier))

    assert released is False
    assert client.exists(f"sys:lock:{name}")
    client.delete(f"sys:lock:{name}")


async def test_min_hold_applies_to_every_name(front, client, name, make):
    names = [f"{name}:a", f"{name}:b"]

    async with front.held(make(names, min_hold=30)):
        pass

    for each in names:
        assert 20_000 < client.pttl(f"sys:lock:{each}") <= 30_000
        client.delete(f"sys:lock:{each}")


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_every_release_method_observes_min_hold(front, client, name, make, topology, method):
    if method == "transaction" and topology.is_cluster:
        pytest.skip("a cluster client cannot WATCH")
    lock = make(min_hold=30, release_method=method)

    async with front.held(lock):
        pass

    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 30_000
    client.delete(f"sys:lock:{name}")
    with pytest.raises(ValueError, match="own"):
        async with front.held(lock):
            raise ValueError("own error of the body")
    assert not client.exists(f"sys:lock:{name}")


async def test_min_hold_is_refused_with_native_release(front, conn):
    for create in (Locks, redis_lock, front.package.RedisLock):
        with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
            create(min_hold=1, release_method="native")
    native = Locks(release_method="native")

    with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
        native.lock("x", min_hold=1)
    with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
        native.configure(min_hold=1)


async def test_error_says_that_min_hold_blocks_the_lock(front, make, client, name):
    async with front.held(make(min_hold=60)) as lease:
        identifier = lease.identifier
    lock = make(acquire_time=0)

    assert await do(lock.owner()) == identifier
    with pytest.raises(LockTimeoutError, match=r"kept by the min_hold of .*… for another \d+.* s"):
        async with front.held(lock):
            pass
    assert not await do(lock.force_release("another"))
    assert await do(lock.force_release(identifier))
    assert not client.exists(f"sys:lock:{name}")


async def test_decorated_function_runs_once_in_its_min_hold(front, conn, client, name):
    runs = []
    decorate = redis_lock(name, client=conn, min_hold=30, acquire_time=0, on_busy="skip")

    async def body(lease):
        runs.append(lease.identifier)
        return "ran"

    work = in_function(front, decorate)

    assert [await work(body) for _ in range(3)] == ["ran", None, None]
    assert len(runs) == 1
    client.delete(f"sys:lock:{name}")
