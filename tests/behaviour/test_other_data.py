"""The key of a lock contains other data: that is reported, and other locks are not affected."""

from __future__ import annotations

import pytest
from support.fronts import do
from support.leftovers import until
from support.queues import queued

from redis_lock_decorators import LockError, LockLostError, LockNameError, LockNotOwnedError
from redis_lock_decorators._rules.keys import companion

SAID = "holds other data"


def spoil(client, key):
    client.delete(key)
    client.rpush(key, "other data")


async def test_release_frees_the_other_names(front, client, conn, name):
    names = [f"{name}:{{{name}}}:{place}" for place in "abc"]
    lease = await do(front.package.RedisLock(names, client=conn, expire=60).acquire())
    spoil(client, f"sys:lock:{names[0]}")

    with pytest.raises(LockLostError, match=SAID):
        await do(lease.release())

    assert [client.exists(f"sys:lock:{one}") for one in names] == [1, 0, 0]
    client.delete(f"sys:lock:{names[0]}")


async def test_holder_is_notified_of_a_key_with_other_data(front, client, conn, name):
    losses = []
    options = {"expire": 0.5, "on_lost": lambda lease, why: losses.append(why)}
    lock = front.package.RedisLock(name, client=conn, cancel_on_lost=False, **options)

    with pytest.raises(LockLostError, match=SAID):
        async with front.held(lock):
            spoil(client, f"sys:lock:{name}")
            await until(front, lambda: losses)

    assert len(losses) == 1
    assert SAID in losses[0]
    client.delete(f"sys:lock:{name}")


async def test_extend_and_release_report_other_data(front, client, conn, name):
    lease = await do(front.package.RedisLock(name, client=conn, expire=60).acquire())
    identifier = await do(front.package.acquire_lock(conn, f"{name}:2", 60))
    for key in (name, f"{name}:2"):
        spoil(client, f"sys:lock:{key}")

    with pytest.raises(LockLostError, match=SAID):
        await do(lease.extend(60))
    with pytest.raises(LockNotOwnedError, match=SAID):
        await do(lease.release())
    assert await do(front.package.extend_lock(conn, f"{name}:2", identifier, 5)) is False
    client.delete(f"sys:lock:{name}", f"sys:lock:{name}:2")


async def test_waiter_fails_long_before_its_acquire_time(front, client, conn, name):
    lock = front.package.RedisLock(name, client=conn, expire=60, acquire_time=60)
    lease = await do(lock.acquire())

    async def wait() -> None:
        with pytest.raises(LockError, match=SAID):
            await do(lock.acquire())

    async def disturb() -> None:
        await queued(front, client, name)
        spoil(client, f"sys:lock:{name}")

    assert await front.elsewhere(wait, disturb) == [None, None]
    with pytest.raises(LockLostError, match=SAID):
        await do(lease.release())
    client.delete(f"sys:lock:{name}")


async def test_asking_for_the_holder_says_which_lock_it_is(front, client, conn, name):
    lock = front.package.RedisLock(name, client=conn, acquire_time=0)
    spoil(client, f"sys:lock:{name}")

    for ask in (lock.locked, lock.owner, lock.force_release, lock.acquire):
        with pytest.raises(LockNameError, match=SAID) as caught:
            await do(ask())
        assert caught.value.lock_name == name
    with pytest.raises(LockNameError, match=SAID) as caught:
        await do(front.package.acquire_lock(conn, name, 0))
    assert caught.value.lock_name == name
    client.delete(f"sys:lock:{name}")


async def test_empty_value_is_a_lock_of_an_unknown_holder(front, client, conn, name):
    lock = front.package.RedisLock(name, client=conn, acquire_time=0)
    client.set(f"sys:lock:{name}", "", px=60_000)

    assert await do(lock.acquire()) is None
    assert await do(lock.locked())
    assert await do(lock.owner()) == ""
    assert await do(lock.force_release())
    assert not client.exists(f"sys:lock:{name}")


async def test_error_says_which_companion_key_may_hold_other_data(front, client, conn, name):
    queue = companion(f"sys:lock:{name}".encode(), b"queue")
    client.set(queue, "other data")
    lease = await do(front.package.RedisLock(name, client=conn, wait="poll").acquire())

    with pytest.raises(LockNameError, match="companion key, by its ending: ~:queue"):
        await do(front.package.RedisLock(name, client=conn, acquire_time=5).acquire())

    await do(lease.release())
    client.delete(queue)


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
@pytest.mark.parametrize("kind", [b"queue", b"waiters", b"released"])
async def test_other_data_in_a_companion_key_is_no_loss(
    front, client, conn, name, topology, method, kind
):
    if method == "native" and not topology.has_native_release:
        pytest.skip("the server has no native release")
    if method == "transaction" and topology.is_cluster:
        pytest.skip("a cluster has no transactions")
    key = f"sys:lock:{name}".encode()
    lock = front.package.RedisLock(name, client=conn, release_method=method)
    spoil(client, companion(key, kind))
    try:
        async with front.held(lock):
            pass
        identifier = await do(front.package.acquire_lock(conn, name, 60))
        assert await do(front.package.release_lock(conn, name, identifier)) is True
    finally:
        client.delete(companion(key, kind))
    assert not client.exists(key)
