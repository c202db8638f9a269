"""RedisLock and Lease on every topology."""

from __future__ import annotations

import gc

import pytest
from support.blocks import acquire_elsewhere
from support.fronts import TIME, do

from redis_lock_decorators import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockNotOwnedError,
    LockTimeoutError,
)


@pytest.fixture
def lock(front, conn, name):
    return front.package.RedisLock(name, client=conn)


@pytest.fixture
def rival(front, conn, name):
    """Another RedisLock of the same name, with a short acquire_time."""
    return front.package.RedisLock(name, client=conn, acquire_time=0)


async def test_block_acquires_and_releases_the_lock(front, conn, client, name, lock, rival):
    async with front.held(lock) as lease:
        assert await do(lock.locked())
        assert await do(lock.owner()) == lease.identifier
        assert await acquire_elsewhere(front, rival) is None

    assert not await do(lock.locked())
    assert await do(lock.owner()) is None
    assert not client.exists(f"sys:lock:{name}")


async def test_lease_has_its_attributes(front, conn, client, name, lock):
    before = TIME.now()

    async with front.held(lock) as lease:
        assert (lease.lock_name, lease.lock_names) == (name, (name,))
        assert lease.key == f"sys:lock:{name}"
        assert lease.expire == 10
        assert before + 9.8 < lease.deadline < TIME.now() + 9.9
        assert 9 < lease.remaining() < 9.9
        assert not lease.lost
        assert await do(lease.owned())
        lease.check()

    assert lease.remaining() == 0
    assert not lease.lost
    assert not await do(lease.owned())


async def test_timeout_error_has_holder_and_remaining_time(front, conn, lock, rival):
    async with front.held(lock) as lease:

        async def enter():
            async with front.held(rival):
                raise AssertionError("held twice")

        (error,) = await front.elsewhere(enter)

    assert isinstance(error, LockTimeoutError)
    assert isinstance(error, TimeoutError)
    assert error.lock_name == lease.lock_name
    assert error.holder == lease.identifier[:8] + "…"
    assert 0 < error.free_in <= 10
    assert lease.identifier not in str(error)


async def test_acquire_returns_a_lease_or_none(front, conn, lock, rival):
    lease = await do(lock.acquire())

    assert await acquire_elsewhere(front, rival) is None
    assert await acquire_elsewhere(front, lock, acquire_time=0.02) is None
    assert await acquire_elsewhere(front, lock, blocking=False) is None
    await do(lease.release())
    taken = await acquire_elsewhere(front, rival)
    await do(taken.release())


async def test_timeout_error_reports_a_key_without_expiry(front, conn, client, name, lock, rival):
    client.set(f"sys:lock:{name}", "a-holder-that-forgot-its-ttl")

    with pytest.raises(LockTimeoutError, match=r"without an expiry.*delete the key") as caught:
        async with front.held(rival):
            raise AssertionError("it must not run")

    assert caught.value.free_in == float("inf")


async def test_blocking_false_tries_once_without_sleeping(front, conn, lock, name, client):
    patient = front.package.RedisLock(name, client=conn, acquire_time=60, delta=3600)
    lease = await do(lock.acquire())

    started = TIME.now()
    assert await acquire_elsewhere(front, patient, blocking=False) is None

    assert TIME.now() - started < 5
    await do(lease.release())


async def test_positional_false_is_refused_with_a_hint(front, conn, lock):
    with pytest.raises(ConfigurationError, match="blocking=False"):
        await do(lock.acquire(False))


async def test_releasing_twice_does_nothing(front, conn, lock, rival):
    lease = await do(lock.acquire())
    await do(lease.release())
    second = await do(rival.acquire())

    await do(lease.release())

    assert await do(second.owned())
    await do(second.release())


@pytest.mark.parametrize("is_acquired_before", [True, False])
async def test_block_within_a_block_of_the_same_lease_is_refused(
    front, conn, lock, is_acquired_before
):
    outer = await do(lock.acquire()) if is_acquired_before else lock
    async with front.held(outer) as lease:

        async def enter():
            async with front.held(lease):
                raise AssertionError("entered")

        (elsewhere,) = await front.elsewhere(enter)
        with pytest.raises(LockError, match="is in a block already"):
            await enter()

        assert "is in a block already" in str(elsewhere)
        assert await do(lease.owned())
    assert not await do(lease.owned())


async def test_any_thread_or_task_may_release_a_lease(front, conn, lock):
    lease = await do(lock.acquire())

    async def release():
        await do(lease.release())

    assert await front.elsewhere(release) == [None]
    assert not await do(lock.locked())


# The garbage of other tests is collected here too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_dropped_lease_does_not_release_the_lock(front, conn, client, name, lock):
    lease = await do(lock.acquire())

    del lease
    gc.collect()

    assert await do(lock.locked())
    client.delete(f"sys:lock:{name}")


async def test_lease_is_a_context_manager(front, conn, lock):
    lease = await do(lock.acquire())

    async with front.held(lease) as same:
        assert same is lease
        assert front.package.current_lease() is lease

    assert not await do(lock.locked())


async def test_ended_lease_cannot_be_entered(front, conn, client, name, lock):
    released = await do(lock.acquire())
    await do(released.release())
    short = front.package.RedisLock(f"{name}:short", client=conn, expire=0.02, auto_renew=False)
    lost = await do(short.acquire())
    await front.sleep(0.03)

    with pytest.raises(LockNotOwnedError, match="was released"):
        async with front.held(released):
            raise AssertionError("it must not run")
    with pytest.raises(LockLostError):
        async with front.held(lost):
            raise AssertionError("it must not run")
    with pytest.raises(LockNotOwnedError, match="was released"):
        await do(released.extend())
    with pytest.raises(LockNotOwnedError, match="was released"):
        released.check()


async def test_extend_counts_from_now_and_never_shortens(front, conn, client, name, lock):
    async with front.held(lock) as lease:
        assert await do(lease.extend(30)) is True

        assert 29 < lease.remaining() < 29.8
        assert 29_000 < client.pttl(f"sys:lock:{name}") <= 30_000
        await do(lease.extend())
        assert 29 < lease.remaining() < 29.8
        assert 29_000 < client.pttl(f"sys:lock:{name}") <= 30_000


async def test_body_error_propagates_and_releases_the_lock(front, conn, lock):
    error = ValueError("the body's own")

    with pytest.raises(ValueError, match="own") as caught:
        async with front.held(lock):
            raise error

    assert caught.value is error
    assert not await do(lock.locked())


async def test_lost_lease_raises_after_a_successful_body(front, conn, client, name, lock):
    with pytest.raises(LockLostError, match="exte"):
        async with front.held(lock):
            client.set(f"sys:lock:{name}", "external")

    assert await do(lock.owner()) == "external"


async def test_lost_lease_does_not_replace_the_body_error(front, conn, client, name, lock, caplog):
    with pytest.raises(ValueError, match="own"):
        async with front.held(lock):
            client.set(f"sys:lock:{name}", "external")
            raise ValueError("the body's own")

    assert "ended before the work did" in caplog.text


async def test_body_longer_than_its_lease_raises(front, conn, client, name):
    options = {"auto_renew": False, "cancel_on_lost": False}
    short = front.package.RedisLock(name, client=conn, expire=0.05, **options)

    with pytest.raises(LockLostError):
        async with front.held(short) as lease:
            await front.sleep(0.1)
            assert lease.lost
            assert lease.remaining() == 0
            with pytest.raises(LockLostError, match="time ran out"):
                lease.check()


async def test_extending_a_lost_lease_fails_and_acquires_nothing(front, conn, client, name, lock):
    lease = await do(lock.acquire())
    client.delete(f"sys:lock:{name}")

    with pytest.raises(LockLostError):
        await do(lease.extend())

    assert lease.lost
    assert not await do(lock.locked())


async def test_reentrant_acquisition_fails_at_once(front, conn, lock, client, name):
    same = front.package.RedisLock(name, client=conn, acquire_time=None)

    async with front.held(lock):
        with pytest.raises(LockError, match="wait for itself") as caught:
            await do(same.acquire())
        assert await do(same.acquire(blocking=False)) is None

    assert not isinstance(caught.value, LockTimeoutError)
    async with front.held(same):
        pass


async def test_lock_of_a_dead_thread_is_not_mistaken_for_reentrant(front, conn, lock, rival):
    lease = await acquire_elsewhere(front, lock)

    assert await do(rival.acquire()) is None
    assert await acquire_elsewhere(front, rival, acquire_time=0.02) is None
    await do(lease.release())


async def test_lock_object_is_shared_by_many_threads(front, conn, client, name, caplog):
    lock = front.package.RedisLock(name, client=conn, acquire_time=60, delta=0.002)
    inside, most = [], []

    async def work():
        async with front.held(lock) as lease:
            inside.append(lease.identifier)
            most.append(len(inside))
            assert await do(lock.owner()) == lease.identifier
            inside.remove(lease.identifier)

    assert await front.elsewhere(*[work] * 50) == [None] * 50
    # The background may warn at any time of a lease that another test has dropped.
    of_others = "garbage-collected without a release"
    ours = [said for said in caplog.records if said.name == "redis_lock_decorators"]
    ours = [
        said for said in ours if of_others not in said.getMessage() or name in said.getMessage()
    ]
    assert ours == []  # they were notified and did not need a recheck
    assert max(most) == 1


async def test_failed_acquire_leaves_the_first_lease_intact(front, conn, lock):
    lease = await do(lock.acquire())

    assert await do(lock.acquire(blocking=False)) is None

    assert await do(lease.owned())
    await do(lease.release())


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_every_release_method_releases(front, conn, client, name, topology, method):
    if method == "native" and not topology.has_native_release:
        pytest.skip("this server lacks it")
    lock = front.package.RedisLock(name, client=conn, release_method=method)

    if method == "transaction" and topology.is_cluster:
        with pytest.raises(ConfigurationError, match="cannot WATCH"):
            await do(lock.acquire())
    else:
        async with front.held(lock):
            pass

    assert not await do(lock.locked())


async def test_flushed_scripts_are_sent_again(front, conn, client, lock, topology):
    if topology.is_cluster:
        pytest.skip("the code is the same; flushing every node is up to the client")
    for _ in range(2):
        async with front.held(lock) as lease:
            client.script_flush()
            assert await do(lease.owned())
            client.script_flush()
