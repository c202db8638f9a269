"""Locks of several names, and names from the arguments of a call."""

from __future__ import annotations

import pytest
from support.blocks import acquire_elsewhere
from support.fronts import do

import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.lock
from redis_lock_decorators import ConfigurationError, LockNameError


async def test_several_names_are_acquired_all_or_none(front, conn, client, name):
    first, second = f"{name}:a", f"{name}:b"
    both = front.package.RedisLock([second, first, first], client=conn, acquire_time=0)
    single = front.package.RedisLock(second, client=conn)

    async with front.held(both) as lease:
        assert lease.lock_names == (first, second)
        assert await do(lease.owned())
        assert await acquire_elsewhere(front, single, blocking=False) is None
    async with front.held(single):
        assert await acquire_elsewhere(front, both) is None
        assert not client.exists(f"sys:lock:{first}")

    assert not client.exists(f"sys:lock:{second}")


async def test_several_names_in_one_slot(front, conn, client, name):
    both = front.package.RedisLock([f"{{{name}}}:a", f"{{{name}}}:b"], client=conn)

    async with front.held(both) as lease:
        assert await do(lease.extend(20)) is True
        assert client.pttl(f"sys:lock:{{{name}}}:b") > 19_000

    assert not await do(both.locked())


async def test_crossed_pairs_do_not_deadlock(front, conn, client, name):
    names = [f"{name}:a", f"{name}:b"]

    def worker(order):
        lock = front.package.RedisLock(order, client=conn, acquire_time=60, delta=0.002)

        async def work():
            for _ in range(5):
                async with front.held(lock):
                    await front.sleep(0.001)

        return work

    done = await front.elsewhere(worker(names), worker(names[::-1]), worker(names))

    assert done == [None] * 3


async def test_call_names_the_lock_by_its_arguments(front, conn, client, name):
    by_argument = front.package.RedisLock(client=conn)
    by_rule = front.package.RedisLock(get_lock_name=lambda item: f"{item}:x", client=conn)
    by_name = front.package.RedisLock(f"{name}:fixed", client=conn)

    def blocking_key(item):
        return front.package.current_lease().key

    async def async_key(item):
        return front.package.current_lease().key

    key = blocking_key if front.name == "blocking" else async_key

    assert await do(by_argument.call(key, name)) == f"sys:lock:{name}"
    assert await do(by_rule.call(key, item=name)) == f"sys:lock:{name}:x"
    assert await do(by_name.call(key, name)) == f"sys:lock:{name}:fixed"


async def test_call_refuses_deferred_functions_before_acquiring(front, conn, client, name):
    def steps():
        yield 1

    async def later():
        raise AssertionError("it must not run")

    client.set(f"sys:lock:{name}", "another")
    lock = front.package.RedisLock(name, client=conn, acquire_time=0)
    with pytest.raises(ConfigurationError, match="before its body runs"):
        await do(lock.call(steps))
    if front.name == "blocking":
        with pytest.raises(ConfigurationError, match="before its body runs"):
            lock.call(later)


async def test_arguments_of_methods_are_refused_by_their_own_names(front, conn, name):
    lock = front.package.RedisLock(name, client=conn)

    with pytest.raises(ConfigurationError, match="blocking='x': give True or False"):
        await do(lock.acquire(blocking="x"))
    async with front.held(lock) as lease:
        with pytest.raises(ConfigurationError, match="seconds=0: a lease lives more than 0 s"):
            await do(lease.extend(0))


async def test_block_without_a_name_is_refused(front, conn, client):
    with pytest.raises(LockNameError, match="no name"):
        async with front.held(front.package.RedisLock(client=conn)):
            pass


async def test_lock_without_prefix_is_the_lock_in_place_of_redis_pys(front, conn, client, name):
    package = redis_lock_decorators if front.name == "blocking" else redis_lock_decorators.asyncio
    replacing = package.lock.Lock(conn, name, timeout=9)
    assert await do(replacing.acquire(blocking=False))

    assert await do(front.package.RedisLock(name, client=conn, prefix="").locked())
    assert not await do(front.package.RedisLock(name, client=conn).locked())

    await do(replacing.release())
