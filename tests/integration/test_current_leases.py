"""Which lease is current, and in which context on_lost and timers run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import time
import weakref

import pytest
from support.blocks import elsewhere, make
from support.fronts import LEGACY, do
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until

from redis_lock_decorators import LockLostError

FRONTS = TIDY_FRONTS

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy")


@asyncio_only
@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks have a copy each before 3.11")
def test_tasks_that_share_a_context_have_their_own_current_leases(server, name):
    async def test():
        from redis_lock_decorators.asyncio import RedisLock, current_lease

        client, shared = ASYNCIO.client(server), contextvars.copy_context()

        async def work(letter):
            async with RedisLock(f"{name}:{letter}", client=client) as lease:
                await asyncio.sleep(0.05)
                assert current_lease() is lease
                await asyncio.sleep(0.05)

        works = [asyncio.get_running_loop().create_task(work(one), context=shared) for one in "ab"]
        await asyncio.gather(*works)

    ASYNCIO.run(test())


@asyncio_only
def test_threads_and_tasks_have_separate_current_leases(server, name):
    async def test():
        tasks, threads = ASYNCIO.package, BLOCKING.package
        async with tasks.RedisLock(f"{name}:a", client=ASYNCIO.client(server)) as outer:
            assert threads.current_lease() is None
            with threads.RedisLock(f"{name}:b", client=server.client()) as inner:
                assert threads.current_lease() is inner
                assert tasks.current_lease() is outer

    ASYNCIO.run(test())


def test_async_on_lost_of_a_blocking_lock_runs(server, direct, name):
    lost = []

    async def on_lost(lease, why):
        await asyncio.sleep(0)
        lost.append(why)

    def lose():
        with BLOCKING.package.RedisLock(name, client=server.client(), on_lost=on_lost):
            direct.delete(f"sys:lock:{name}")

    async def within_an_event_loop():
        with pytest.raises(LockLostError):
            lose()

    with pytest.raises(LockLostError):
        lose()
    asyncio.run(within_an_event_loop())

    end = time.monotonic() + 20
    while len(lost) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert lost == ["its key is gone"] * 2


async def test_on_lost_runs_in_the_context_of_the_holder(front, direct, server, name):
    request = contextvars.ContextVar("request", default="default")
    client, lost = front.client(server), []

    async def acquire(number):
        request.set(number)

        def on_lost(lease, why):
            lost.append((number, request.get()))

        own = {"client": client, "expire": 0.6, "cancel_on_lost": False, "on_lost": on_lost}
        return await do(front.package.RedisLock(f"{name}:{number}", **own).acquire())

    leases = [await elsewhere(front, lambda number=number: acquire(number)) for number in range(3)]
    direct.delete(*[lease.key for lease in leases])
    await until(front, lambda: len(lost) == 3)

    assert sorted(lost) == [(0, 0), (1, 1), (2, 2)]


async def test_timers_do_not_keep_the_context_of_a_holder(front, server, name):
    request = contextvars.ContextVar("request")
    client, found = front.client(server), []

    class Request:
        pass

    async def connect():
        async with front.held(front.package.RedisLock(f"{name}:x", client=client, expire=0.1)):
            pass
        await front.sleep(0.5)  # until the timer of this lease and the work it started have ended

    async def serve():
        mine = Request()
        request.set(mine)
        found.append(weakref.ref(mine))
        async with front.held(front.package.RedisLock(f"{name}:a", client=client, expire=3)):
            await front.sleep(0.15)  # this lease is the first that needs a timer

    async def hold():
        await front.sleep(0.05)
        async with front.held(front.package.RedisLock(f"{name}:b", client=client, expire=3)):
            await until(front, lambda: gc.collect() >= 0 and found[0]() is None)

    await elsewhere(front, connect)
    serving = functools.partial(elsewhere, front, serve)  # a finished task keeps its context
    assert await front.elsewhere(serving, hold) == [None, None]


async def test_cancellation_raised_by_on_lost_is_logged(front, direct, name, caplog, server):
    def on_lost(lease, why):
        raise asyncio.CancelledError("raised by a future that on_lost awaited")

    lock = make(front, server, name, expire=0.6, on_lost=on_lost, cancel_on_lost=False)
    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            await until(front, lambda: lease.lost)
    await until(front, lambda: "on_lost of lock" in caplog.text)
    caplog.clear()  # the traceback refers to the client and would keep its connections open


@asyncio_only
def test_loss_found_by_another_task_cancels_the_holder(server, direct, name):
    async def test():
        from redis_lock_decorators.asyncio import RedisLock

        async def extend(lease):
            direct.delete(lease.key)
            with pytest.raises(LockLostError):
                await lease.extend(10)

        with pytest.raises(LockLostError):
            async with RedisLock(name, client=ASYNCIO.client(server), expire=60) as lease:
                extending = asyncio.ensure_future(extend(lease))
                await asyncio.sleep(30)
        await extending

    started = time.monotonic()
    ASYNCIO.run(test())
    assert time.monotonic() - started < 25
