"""Cancelled at every point where a task can be cancelled, over a network that takes its time."""

from __future__ import annotations

import asyncio

import pytest
import redis
from support.fronts import AsyncioFront

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators.asyncio import RedisLock, acquire_lock, current_lease

FRONTS = [AsyncioFront()]


class Suspensions:
    """Runs a coroutine and cancels its task the n-th time that it suspends."""

    def __init__(self, number):
        self.left = number

    async def run(self, work):
        task = asyncio.ensure_future(self._counted(work))
        self.task = task
        return await task

    async def _counted(self, work):
        return await _Counting(work, self)

    def step(self):
        self.left -= 1
        if self.left == -1:
            asyncio.get_running_loop().call_soon(self.task.cancel)

    @property
    def happened(self):
        return self.left < 0


class _Counting:
    def __init__(self, work, suspensions):
        self.work = work
        self.suspensions = suspensions

    def __await__(self):
        steps = self.work.__await__()
        value, error = None, None
        while True:
            try:
                waits = steps.throw(error) if error else steps.send(value)
            except StopIteration as stop:
                return stop.value
            self.suspensions.step()
            value, error = None, None
            try:
                value = yield waits
            except BaseException as thrown:
                error = thrown


async def cancel_everywhere(make_work, check):
    """Cancel the work at each of its suspensions, and check after each; how many there were."""
    for number in range(200):
        suspensions = Suspensions(number)
        try:
            await suspensions.run(make_work())
            cancelled = False
        except asyncio.CancelledError:
            cancelled = True
        await check(cancelled)
        if not suspensions.happened:
            return number
    raise AssertionError("the work never ends")


@pytest.mark.parametrize("fresh", [False, True], ids=["idle-connection", "new-connection"])
async def test_a_cancelled_block_leaves_no_key(front, proxy, direct, name, fresh):
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


async def test_a_cancelled_acquire_leaves_no_key(front, proxy, direct, name):
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


async def test_a_cancelled_acquire_lock_leaves_no_key(front, proxy, direct, name):
    proxy.delay = 0.002
    client = front.client(proxy)

    async def check(cancelled):
        assert bool(direct.exists(f"sys:lock:{name}")) is not cancelled
        direct.delete(f"sys:lock:{name}")

    assert await cancel_everywhere(lambda: acquire_lock(client, name), check) >= 1


async def test_a_cancelled_waiter_leaves_no_key_and_the_holder_alone(front, proxy, direct, name):
    client = front.client(proxy)
    waiter = RedisLock(name, client=client, acquire_time=0.02, delta=0.005)

    async with RedisLock(name, client=client) as held:

        async def check(cancelled):
            assert direct.get(f"sys:lock:{name}").decode() == held.identifier

        assert await cancel_everywhere(lambda: asyncio.ensure_future(waiter.acquire()), check)


async def test_a_cancelled_release_completes_and_the_cancellation_passes(
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


@pytest.mark.parametrize("way", ["wait_for", "task_group"])
async def test_a_time_out_round_an_acquire_leaves_no_key(front, proxy, direct, name, way):
    client = front.client(proxy)
    lock = RedisLock(name, client=client)
    async with lock:
        pass
    proxy.delay = 0.1

    if way == "wait_for":
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire(), 0.05)
    else:
        group = getattr(asyncio, "TaskGroup", None)
        if group is None:
            pytest.skip("no task groups before Python 3.11")

        async def fail():
            await asyncio.sleep(0.05)
            raise ValueError("another's")

        with pytest.raises(BaseException, match=r"another|unhandled"):
            async with group() as tasks:
                tasks.create_task(lock.acquire())
                tasks.create_task(fail())

    assert not direct.exists(f"sys:lock:{name}")


async def test_the_cancellation_is_not_replaced_by_a_lost_lease(front, server, direct, name):
    inside = asyncio.Event()

    async def work():
        async with RedisLock(name, client=front.client(server)):
            direct.set(f"sys:lock:{name}", "stranger")
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    direct.delete(f"sys:lock:{name}")
