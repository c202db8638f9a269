"""Many tasks that use one client: few connections, separate results."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis
from support.fronts import AsyncioFront
from support.leftovers import lasting

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators import LockError, LockTimeoutError
from redis_lock_decorators.asyncio import RedisLock, acquire_lock, current_lease, release_lock

FRONTS = [AsyncioFront()]


def connections(direct):
    return len(direct.client_list())


async def test_ten_thousand_tasks_use_two_connections(front, server, direct, name):
    client = front.client(server)
    before, most = connections(direct), []

    async def work(number):
        async with RedisLock(f"{name}:{number}", client=client, expire=60):
            if number % 1000 == 0:
                most.append(connections(direct) - before)

    await asyncio.gather(*[work(number) for number in range(10_000)])

    assert max(most) <= 2
    assert not lasting(direct, f"sys:lock:{name}:*")


async def test_ten_thousand_waiters_do_not_run_out_of_connections(front, server, direct, name):
    client = front.client(server)
    before = connections(direct)

    async def wait():
        return await RedisLock(name, client=client, acquire_time=0.5, delta=2).acquire()

    async with RedisLock(name, client=client, expire=60):
        leases = await asyncio.gather(*[wait() for _ in range(10_000)])
        assert connections(direct) - before <= 2

    assert leases == [None] * 10_000


async def test_lock_object_serves_a_thousand_tasks(front, server, direct, name):
    lock = RedisLock(name, client=front.client(server), acquire_time=60, delta=0.2)
    inside, most, identifiers = [], [], set()

    async def work():
        async with lock as lease:
            inside.append(lease)
            most.append(len(inside))
            identifiers.add(lease.identifier)
            assert current_lease() is lease
            inside.remove(lease)

    await asyncio.gather(*[work() for _ in range(1_000)])

    assert max(most) == 1
    assert len(identifiers) == 1_000


async def test_failing_request_fails_only_its_own_caller(front, server, direct, name):
    client = front.client(server)
    direct.rpush(f"sys:lock:{name}:5", "no lock")

    async def acquire(number):
        async with RedisLock(f"{name}:{number}", client=client):
            return number

    results = await asyncio.gather(
        *[acquire(number) for number in range(10)], return_exceptions=True
    )

    assert isinstance(results.pop(5), LockError)
    assert results == [0, 1, 2, 3, 4, 6, 7, 8, 9]


async def test_cancelled_request_does_not_affect_its_batch(front, server, name):
    client = front.client(server)

    async def acquire(number):
        async with RedisLock(f"{name}:{number}", client=client):
            return number

    tasks = [asyncio.ensure_future(acquire(number)) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert results[1::2] == list(range(1, 20, 2))


async def test_child_task_does_not_hold_its_parents_lock(front, server, name):
    lock = RedisLock(name, client=front.client(server), acquire_time=0)

    async def acquire():
        assert current_lease() is lease
        async with lock:
            raise AssertionError("the lock is held")

    async with lock as lease:
        (result,) = await asyncio.gather(acquire(), return_exceptions=True)
        assert isinstance(result, LockTimeoutError)
        assert await lease.owned()


async def test_lock_object_serves_the_loops_of_several_threads(front, server, name):
    from redis.asyncio import Redis

    from redis_lock_decorators import Locks

    made = {}

    def factory():
        return made.setdefault(asyncio.get_running_loop(), Redis(port=server.port))

    lock = Locks(get_async_redis_connection=factory).async_lock(name, acquire_time=60, delta=0.002)
    inside, most = [], []

    async def work():
        for _ in range(5):
            async with lock:
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0.001)
                inside.pop()
        await made[asyncio.get_running_loop()].aclose()

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert len(made) == 3
    assert max(most) == 1


async def test_waiting_does_not_block_other_tasks_of_the_loop(front, server, name):
    client = front.client(server)
    identifier = await acquire_lock(client, name, expire=60)
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    assert await acquire_lock(client, name, 0.1) is False
    ticking.cancel()

    assert identifier
    assert ticks > 10


def returning(execute):
    return lambda *args, **options: execute(*args, **options)


class Wrapper:
    """A user's own client, whose plain function returns an awaitable."""

    def __init__(self, client):
        self.client = client
        self.connection_pool = client.connection_pool
        self.pipeline = client.pipeline

    def execute_command(self, *args, **options):
        return self.client.execute_command(*args, **options)


def overriding(client):
    method = returning(type(client).execute_command)
    kind = type("Overriding", (type(client),), {"execute_command": method})
    return kind(connection_pool=client.connection_pool)


def patched(client):
    client.execute_command = returning(client.execute_command)
    return client


@pytest.mark.parametrize("wrap", [Wrapper, overriding, patched])
async def test_client_whose_plain_function_returns_an_awaitable_works(
    wrap, front, server, direct, name
):
    client, order = wrap(front.client(server)), []

    async def work():
        async with RedisLock(name, client=client, acquire_time=30) as lease:
            order.append("in")
            assert await lease.extend(30)
            order.append("out")

    await asyncio.gather(*[work() for _ in range(3)])
    identifier = await acquire_lock(client, name)
    assert await acquire_lock(client, name, acquire_time=0) is False
    assert await release_lock(client, name, identifier)

    assert order == ["in", "out"] * 3
    assert not direct.exists(f"sys:lock:{name}")
