"""Leases and generators that continue in another thread, task, context or process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
import time

import pytest
from support.blocks import elsewhere, leave, make
from support.fronts import LEGACY, do
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until
from support.workers import in_child

from redis_lock_decorators import (
    LockError,
    LockLostError,
    LockTimeoutError,
    current_lease,
    redis_lock,
)
from redis_lock_decorators._shared.current_leases import _entered

FRONTS = TIDY_FRONTS

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

pytestmark = pytest.mark.usefixtures("tidy")


async def test_lease_outlives_the_thread_or_task_that_acquired_it(front, direct, server, name):
    lock = make(front, server, name, expire=0.6)
    lease = await elsewhere(front, lock.acquire)
    first = lease.deadline

    await until(front, lambda: time.monotonic() > first + 0.3)

    assert not lease.lost
    assert await do(lease.owned())
    await do(lease.release())


class InContext:
    """An awaitable that runs a coroutine in another context."""

    def __init__(self, context, work):
        self._context = context
        self._work = work

    def __await__(self):
        while True:
            try:
                step = self._context.run(self._work.send, None)
            except StopIteration as end:
                return end.value
            yield step


async def test_task_may_wait_for_a_block_that_was_handed_over(front, server, name):
    client, context = front.client(server), contextvars.copy_context()
    lock, same = [
        front.package.RedisLock(name, client=client, acquire_time=wait) for wait in (5, 0.05)
    ]

    if front is BLOCKING:
        context.run(lock.__enter__)
    else:
        await InContext(context, lock.__aenter__())
    with pytest.raises(LockTimeoutError):  # another task may leave it
        async with front.held(same):
            pass
    with pytest.raises(LockError, match="wait for itself"):
        if front is BLOCKING:
            context.run(same.acquire)
        else:
            await InContext(context, same.acquire())
    await leave(front, lock)
    async with front.held(same):
        pass


async def test_task_may_wait_for_a_lease_that_another_releases(front, server, name):
    client = front.client(server)
    lock, other = [
        front.package.RedisLock(name, client=client, acquire_time=wait) for wait in (0, 20)
    ]
    lease = await do(lock.acquire())

    async def release():
        await front.sleep(0.1)
        await do(lease.release())

    async def wait():
        return await do(other.acquire())

    if front is BLOCKING:
        thread = threading.Thread(target=lambda: (time.sleep(0.1), lease.release()))
        thread.start()
        again = other.acquire()
        thread.join()
    else:
        task = asyncio.ensure_future(release())
        again = await wait()
        await task

    assert again is not None
    await do(again.release())


def test_leases_left_elsewhere_are_forgotten(server, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client())
    with (
        concurrent.futures.ThreadPoolExecutor(1) as one,
        concurrent.futures.ThreadPoolExecutor(1) as two,
    ):
        for _ in range(5):
            lease = lock.acquire()
            one.submit(lease.__enter__).result()
            two.submit(lease.__exit__, None, None, None).result()
            one.submit(lock.__enter__).result()
            two.submit(lock.__exit__, None, None, None).result()
        seen = one.submit(_entered.get).result()

    assert seen is None or seen[1] is None
    assert len(lock._blocks) == 0


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_forked_during_a_request_is_refused_immediately(server, direct, name):
    lease = BLOCKING.package.RedisLock(name, client=server.client()).acquire()
    entered, may_end = threading.Event(), threading.Event()

    def busy():
        with lease._mutex:  # as during a request of another thread
            entered.set()
            may_end.wait(20)

    thread = threading.Thread(target=busy)
    thread.start()
    entered.wait(20)
    errors = [in_child(lease.release), in_child(lease.extend)]
    may_end.set()
    thread.join()

    assert all("LockNotOwnedError" in error for error in errors)
    assert lease.owned()
    lease.release()


def rows(server, name):
    """A decorated generator with a short lease, the steps it has done and the losses reported."""
    done, lost = [], []

    @redis_lock(name, client=server.client(), expire=0.6, on_lost=lambda *_: lost.append(1))
    def steps():
        for number in range(3):
            yield number
            done.append(number)

    return steps, done, lost


def test_threads_that_run_steps_of_a_generator_may_end(server, direct, name):
    steps, done, lost = rows(server, name)
    generator = steps()

    thread = threading.Thread(target=next, args=(generator,))
    thread.start()
    thread.join()
    time.sleep(1.2)

    assert direct.exists(f"sys:lock:{name}")
    assert list(generator) == [1, 2]
    assert (done, lost) == ([0, 1, 2], [])


def test_generator_stops_when_its_lock_is_lost(server, direct, name, caplog):
    steps, done, lost = rows(server, name)

    with pytest.raises(LockLostError):
        for _ in steps():
            direct.delete(f"sys:lock:{name}")
            while not lost:
                time.sleep(0.01)

    assert done == []
    caplog.clear()  # the traceback refers to the client and would keep its connections open


@asyncio_only
@pytest.mark.parametrize("cancels", [True, False])
def test_async_generator_stops_when_its_lock_is_lost(server, direct, name, cancels):
    done, lost = [], []

    async def test():
        @redis_lock(
            name,
            client=ASYNCIO.client(server),
            expire=0.6,
            cancel_on_lost=cancels,
            on_lost=lambda *_: lost.append(1),
        )
        async def steps():
            for number in range(3):
                yield number
                done.append(number)

        with pytest.raises(LockLostError):
            async for _ in steps():
                direct.delete(f"sys:lock:{name}")
                await until(ASYNCIO, lambda: lost)

    ASYNCIO.run(test())
    assert done == ([] if cancels else [0, 1, 2])


def test_consumer_of_a_generator_checks_the_lease_that_it_yields(server, direct, name, caplog):
    @redis_lock(name, client=server.client(), expire=0.6)
    def dependency():
        yield current_lease()

    steps = dependency()
    lease = next(steps)
    lease.check()
    direct.delete(f"sys:lock:{name}")
    until_lost(lease)

    with pytest.raises(LockLostError):
        lease.check()
    with pytest.raises(LockLostError):
        next(steps)
    caplog.clear()  # the traceback refers to the client and would keep its connections open


@asyncio_only
def test_consumer_of_an_async_generator_checks_the_lease_that_it_yields(server, direct, name):
    from redis_lock_decorators.asyncio import current_lease as async_current_lease

    async def test():
        @redis_lock(name, client=ASYNCIO.client(server), expire=0.6)
        async def dependency():
            yield async_current_lease()

        steps = dependency()
        lease = await anext(steps)
        lease.check()
        direct.delete(f"sys:lock:{name}")
        await until(ASYNCIO, lambda: lease.lost)

        with pytest.raises(LockLostError):
            lease.check()
        with pytest.raises(LockLostError):
            await anext(steps)

    ASYNCIO.run(test())


def until_lost(lease):
    """Wait until the loss of a lease is noticed."""
    while not lease.lost:
        time.sleep(0.01)
