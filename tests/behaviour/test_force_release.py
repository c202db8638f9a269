"""A lock is released by another process than its holder, on every topology."""

from __future__ import annotations

import pytest
from support.fronts import LEGACY, do
from support.queues import queued

from redis_lock_decorators import ConfigurationError, LockLostError


@pytest.fixture
def lock(front, conn, name):
    return front.package.RedisLock(name, client=conn, acquire_time=30, expire=30)


async def test_held_lock_is_released_and_its_holder_notified(front, lock):
    lease = await do(lock.acquire())

    assert await do(lock.force_release())

    assert not await do(lock.locked())
    with pytest.raises(LockLostError, match="key is gone"):
        await do(lease.release())


async def test_forced_release_hands_the_lock_to_a_waiter(front, client, name, lock):
    lease = await do(lock.acquire())

    async def wait():
        return await do(lock.acquire())

    async def force():
        await queued(front, client, name)
        return await do(lock.force_release(lease.identifier))

    taken, forced = await front.elsewhere(wait, force)

    assert forced
    assert await do(lock.owner()) == taken.identifier
    with pytest.raises(LockLostError, match="holds it"):
        await do(lease.release())
    await do(taken.release())


async def test_every_error_of_a_lost_lease_has_the_holder_of_the_lock(front, client, name, lock):
    lease = await do(lock.acquire())
    client.set(f"sys:lock:{name}", "0123456789abcdef", px=60_000)

    for ask in (lease.extend, lease.check, lease.release, lease.extend):
        with pytest.raises(LockLostError, match=r"01234567… holds it.*released by force") as caught:
            value = ask()
            if value is not None:
                await do(value)
        assert caught.value.holder == "01234567…"
    client.delete(f"sys:lock:{name}")


async def test_free_lock_is_not_touched(lock):
    assert not await do(lock.force_release())


async def test_lock_with_another_identifier_is_not_released(lock):
    lease = await do(lock.acquire())

    assert not await do(lock.force_release("another"))

    assert await do(lease.owned())
    await do(lease.release())


async def test_lock_name_may_come_from_a_function(front, conn, client, name):
    client.set(f"shop:{name}", "stuck", px=60_000)

    assert not await do(front.package.force_release(name, client=conn))
    assert await do(front.package.force_release(name, client=conn, prefix="shop:"))

    assert not client.exists(f"shop:{name}")


async def test_held_names_of_several_are_released(front, conn, client, name):
    names = [f"{name}:a", f"{name}:b", f"{name}:c"]
    for one in names[:2]:
        client.set(f"sys:lock:{one}", f"holder of {one}", px=60_000)

    assert await do(front.package.force_release(names, client=conn))

    assert [client.exists(f"sys:lock:{one}") for one in names] == [0, 0, 0]


@pytest.mark.parametrize("identifier", ["", False, 7])
async def test_invalid_identifier_is_refused(lock, identifier):
    with pytest.raises(ConfigurationError, match="identifier"):
        await do(lock.force_release(identifier))


@pytest.mark.parametrize("value", [b"\xff\xfe", b"caf\xe9"])
@pytest.mark.parametrize("is_checked", [True, False])
async def test_value_that_is_no_text_is_released(
    front, conn, client, name, lock, value, is_checked
):
    is_old_cluster = LEGACY and hasattr(conn, "refresh_table_asap")
    if is_old_cluster and conn.connection_pool.connection_kwargs.get("decode_responses"):
        pytest.skip("redis-py-cluster decodes replies itself")
    client.set(f"sys:lock:{name}", value, px=60_000)

    assert not await do(lock.force_release("another"))
    assert await do(lock.force_release(await do(lock.owner()) if is_checked else None))

    assert not client.exists(f"sys:lock:{name}")
