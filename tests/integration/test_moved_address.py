"""Locks follow a client whose address leads to another server while the old one is still up."""

from contextlib import closing

import pytest
from support.fronts import do
from support.leftovers import until

from redis_lock_decorators.testing import LocalServer
from redis_lock_decorators.testing.address import LocalAddress


@pytest.fixture
def other():
    """The server to which the address leads after the move."""
    with LocalServer() as server:
        yield server


@pytest.fixture
def address(frail):
    with LocalAddress(frail) as address:
        yield address


async def close(client):
    """Close a client; its next use opens it again."""
    await do(getattr(client, "aclose", client.close)())


async def disconnect(client):
    await do(client.connection_pool.disconnect())


@pytest.mark.parametrize("is_stopped", [False, True], ids=["up", "stopped"])
async def test_lease_goes_where_a_client_with_another_pool_goes(
    front, frail, other, name, is_stopped
):
    client, key = front.client(frail), f"sys:lock:{name}"
    async with front.held(front.package.RedisLock(name, client=client, expire=1.5)) as lease:
        with (
            closing(frail.client()) as direct,
            closing(other.client()) as new,
        ):
            new.restore(key, direct.pttl(key), direct.dump(key))
            client.connection_pool = front.client(other).connection_pool
            if is_stopped:
                frail.stop()
            await front.sleep(2.5)
            assert not lease.lost
            assert new.exists(key)
            assert is_stopped or not direct.exists(key)
    with closing(other.client()) as new:
        assert not new.exists(key)


@pytest.mark.parametrize("drop", [close, disconnect], ids=["close", "disconnect"])
async def test_locks_and_renewals_follow_a_client_that_reconnects(
    front, address, other, name, drop
):
    client = front.client(address)
    await do(client.ping())
    async with front.held(front.package.RedisLock(f"{name}:1", client=client, expire=0.6)):
        await front.sleep(0.8)  # until the background has a connection too

    address.point_to(other)
    await drop(client)
    await do(client.ping())

    with closing(other.client()) as direct:
        async with front.held(front.package.RedisLock(name, client=client, expire=1)):
            assert direct.exists(f"sys:lock:{name}")
            await front.sleep(1.5)
            assert direct.exists(f"sys:lock:{name}")
        assert not direct.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("drop", [close, disconnect], ids=["close", "disconnect"])
async def test_lease_held_during_the_move_is_reported_as_lost(front, address, other, name, drop):
    client, lost_reasons = front.client(address), []
    lock = front.package.RedisLock(
        name, client=client, expire=1, on_lost=lambda lock_name, why: lost_reasons.append(why)
    )
    lease = await do(lock.acquire())
    await front.sleep(0.5)

    address.point_to(other)
    await drop(client)

    await until(front, lambda: bool(lost_reasons))
    assert lease.lost


async def test_waiter_continues_at_the_new_server(front, frail, address, other, name):
    client, found = front.client(address), []
    key = f"sys:lock:{name}"
    with closing(frail.client()) as old, closing(other.client()) as new:
        old.set(key, "another client", px=600_000)

        async def wait():
            async with front.held(front.package.RedisLock(name, client=client, acquire_time=20)):
                found.append(bool(new.exists(key)))

        async def move():
            await front.sleep(0.5)
            address.point_to(other)
            await disconnect(client)

        await front.elsewhere(wait, move)

    assert found == [True]
