"""Tasks that are cancelled at each point where they suspend, over a slow network."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis
from support.fronts import AsyncioFront
from support.suspensions import cancel_everywhere

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators.asyncio import RedisLock, acquire_lock, current_lease, release_lock

FRONTS = [AsyncioFront()]


@pytest.mark.parametrize("fresh", [False, True], ids=["idle-connection", "new-connection"])
async def test_cancelled_block_leaves_no_key(front, proxy, direct, name, fresh):
    proxy.delay = 0.002
    client = front.client(proxy)
    lock = RedisLock(name, client=client)

    async def work():
        if fresh:
            await client.connection_pool.disconnect()
        async with lock:
            await asyncio.sleep(0)

    async def check(cancelled):
        assert not direct.exists(f"sys:lock:{name}")
        assert current_lease() is None

    assert await cancel_everywhere(work, check) >= 3


async def test_cancelled_acquire_leaves_no_key(front, proxy, direct, name):
    proxy.delay = 0.002
    lock = RedisLock(name, client=front.client(proxy))
    leases = []

    async def work():
        leases.append(await lock.acquire())

    async def check(cancelled):
        while leases:
            await leases.pop().release()
        assert not direct.exists(f"sys:lock:{name}")

    assert await cancel_everywhere(work, check) >= 1


@pytest.mark.parametrize("method", ["transaction", "script"])
@pytest.mark.parametrize("identifier", [new_identifier(), "own"], ids=["generated", "own"])
async def test_cancelled_release_lock_leaves_no_key(front, proxy, direct, name, method, identifier):
    proxy.delay = 0.002
    client = front.client(proxy)

    async def work():
        direct.set(f"sys:lock:{name}", identifier, px=60_000)
        await release_lock(client, name, identifier, method=method)

    async def check(cancelled):
        assert not direct.exists(f"sys:lock:{name}")

    assert await cancel_everywhere(work, check) >= 1


@pytest.mark.parametrize("method", ["transaction", "script"])
async def test_cancelled_release_lock_does_not_release_the_next_holders(
    front, proxy, direct, name, method
):
    proxy.delay = 0.002
    client = front.client(proxy)
    key = f"sys:lock:{name}"

    async def next_holder():
        while direct.exists(key):
            await asyncio.sleep(0)
        direct.set(key, "ours", px=60_000)

    async def work():
        direct.set(key, "ours", px=60_000)
        other = asyncio.ensure_future(next_holder())
        try:
            await release_lock(client, name, "ours", method=method)
        finally:
            work.has_next = other.done()
            other.cancel()

    async def check(cancelled):
        assert direct.exists(key) or not work.has_next

    assert await cancel_everywhere(work, check) >= 1


async def test_cancelled_acquire_lock_leaves_no_key(front, proxy, direct, name):
    proxy.delay = 0.002
    client = front.client(proxy)

    async def check(cancelled):
        assert bool(direct.exists(f"sys:lock:{name}")) is not cancelled
        direct.delete(f"sys:lock:{name}")

    assert await cancel_everywhere(lambda: acquire_lock(client, name), check) >= 1


async def test_cancelled_waiter_does_not_affect_the_holder(front, proxy, direct, name):
    client = front.client(proxy)
    waiter = RedisLock(name, client=client, acquire_time=0.02, delta=0.005)

    async with RedisLock(name, client=client) as held:

        async def check(cancelled):
            assert direct.get(f"sys:lock:{name}").decode() == held.identifier

        assert await cancel_everywhere(lambda: asyncio.ensure_future(waiter.acquire()), check)


async def test_cancelled_release_completes_and_the_cancellation_propagates(
    front, proxy, direct, name
):
    proxy.delay = 0.002
    lock = RedisLock(name, client=front.client(proxy))
    seen = []

    async def work():
        lease = await lock.acquire()
        try:
            seen.append("held")
            await asyncio.shield(asyncio.sleep(0))
        finally:
            await lease.release()

    async def check(cancelled):
        assert not direct.exists(f"sys:lock:{name}")

    assert await cancel_everywhere(work, check) >= 3
    assert seen


@pytest.mark.parametrize("limit", ["wait_for", "task_group"])
async def test_timeout_of_an_acquire_leaves_no_key(front, proxy, direct, name, limit):
    client = front.client(proxy)
    lock = RedisLock(name, client=client)
    async with lock:
        pass
    proxy.delay = 0.1

    if limit == "wait_for":
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire(), 0.05)
    else:
        group = getattr(asyncio, "TaskGroup", None)
        if group is None:
            pytest.skip("no task groups before Python 3.11")

        async def fail():
            await asyncio.sleep(0.05)
            raise ValueError("raised by another task")

        with pytest.raises(BaseException, match=r"another|unhandled"):
            async with group() as tasks:
                tasks.create_task(lock.acquire())
                tasks.create_task(fail())

    assert not direct.exists(f"sys:lock:{name}")


async def test_cancellation_is_not_replaced_by_a_lost_lease(front, server, direct, name):
    inside = asyncio.Event()

    async def work():
        async with RedisLock(name, client=front.client(server)):
            direct.set(f"sys:lock:{name}", "another")
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    direct.delete(f"sys:lock:{name}")


async def test_undo_does_not_overtake_a_cancelled_acquisition(front, proxy, direct, name):
    """The acquisition waits for replicas over a connection that others do not wait for."""
    client = front.client(proxy)
    key, under_way = f"sys:lock:{name}", []

    def delays_acquisition(command):
        if key.encode() in command and not under_way:
            under_way.append(command)
            time.sleep(0.1)  # on this connection only
        return False

    # Leave two idle connections, and have the server know the scripts.
    unconfirmed = RedisLock(f"{name}:other", client=client, replicas=1, acquire_time=0).acquire()
    held, _ = await asyncio.gather(
        RedisLock(f"{name}:2", client=client).acquire(), unconfirmed, return_exceptions=True
    )
    await held.release()
    proxy.drop_request(delays_acquisition)
    task = asyncio.ensure_future(RedisLock(name, client=client, replicas=1).acquire())
    while not under_way:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])

    await asyncio.sleep(0.2)
    assert task.cancelled()
    assert not direct.exists(key)
