"""Coroutines that the garbage collector closes release their locks, without awaiting."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys

import pytest
from support.fronts import LEGACY, AsyncioFront
from support.leftovers import ASYNCIO, until

from redis_lock_decorators import redis_lock
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.asyncio_port import pool_transport
from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batcher import RequestBatcher

FRONTS = [ASYNCIO]
pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


async def hold(client, name):
    async with ASYNCIO.package.RedisLock(name, client=client, expire=30):
        await asyncio.sleep(100)


async def hold_drop_in(client, name):
    from redis_lock_decorators.asyncio.lock import Lock

    async with client.lock(f"sys:lock:{name}", timeout=30, lock_class=Lock):
        await asyncio.sleep(100)


async def hold_and_fail(client, name):
    async with ASYNCIO.package.RedisLock(name, client=client, expire=30):
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("the clean-up fails")


async def hold_regardless(client, name):
    async with ASYNCIO.package.RedisLock(name, client=client, expire=30):
        with contextlib.suppress(GeneratorExit):
            await asyncio.sleep(100)


async def hold_decorated(client, name):
    @redis_lock(name, client=client, expire=30)
    async def work():
        await asyncio.sleep(100)

    await work()


async def hold_by_hand(client, name):
    lease = await ASYNCIO.package.RedisLock(name, client=client, expire=30).acquire()
    try:
        await asyncio.sleep(100)
    finally:
        await lease.release()


#: Seconds in which an exchange that gets no reply has ended.
EXCHANGE = ROUND_TRIP + 1.0
HOLDERS = pytest.mark.parametrize("holder", [hold, hold_decorated, hold_drop_in, hold_by_hand])


async def begun(work):
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.1)
    return task


@pytest.mark.parametrize("waits", [True, False], ids=["waiter", "holder"])
async def test_closed_coroutine_releases_its_lock_later(front, server, direct, name, waits):
    client, key = ASYNCIO.client(server), f"sys:lock:{name}"
    before = await ASYNCIO.package.RedisLock(name, client=client).acquire() if waits else None
    coroutine = hold(client, name)
    task = await begun(coroutine)

    coroutine.close()
    if before is not None:
        await before.release()

    await until(ASYNCIO, lambda: not background_tasks().tasks() and not direct.exists(key))
    assert not direct.exists(key)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@HOLDERS
@pytest.mark.parametrize("has_loop", [True, False], ids=["another-loop", "no-loop"])
async def test_coroutine_closed_on_another_thread_releases_its_lock_on_its_own_loop(
    front, server, direct, name, holder, has_loop, caplog
):
    async def close():
        coroutine.close()
        return background_tasks().tasks()

    client, key, coroutine = ASYNCIO.client(server), f"sys:lock:{name}", None
    coroutine = holder(client, name)
    task = await begun(coroutine)
    assert direct.exists(key)

    if has_loop:
        assert await asyncio.to_thread(asyncio.run, close()) == []
    else:
        await asyncio.to_thread(coroutine.close)

    await until(ASYNCIO, lambda: not background_tasks().tasks() and not direct.exists(key))
    assert not direct.exists(key)
    assert caplog.records == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@HOLDERS
async def test_holder_that_is_closed_releases_its_lock_once(
    front, server, direct, name, holder, caplog
):
    client, key = ASYNCIO.client(server), f"sys:lock:{name}"
    coroutine = holder(client, name)
    task = await begun(coroutine)

    coroutine.close()

    await until(ASYNCIO, lambda: not background_tasks().tasks() and not direct.exists(key))
    assert not direct.exists(key)
    assert caplog.records == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("method", ["script", "transaction"])
@pytest.mark.parametrize("swallows", [True, False], ids=["swallowed", "replaced"])
async def test_closed_coroutine_whose_body_replaces_the_error_affects_no_other(
    front, server, direct, name, method, swallows
):
    """Neither the task that closes it, nor the locks of the same client."""
    client, key = ASYNCIO.client(server), f"sys:lock:{name}"

    async def hold_and_fail():
        lock = ASYNCIO.package.RedisLock(name, client=client, expire=30, release_method=method)
        async with lock:
            try:
                await asyncio.sleep(100)
            except GeneratorExit:
                if not swallows:
                    raise ValueError("the clean-up fails") from None

    coroutine = hold_and_fail()
    task = await begun(coroutine)

    with pytest.raises(RuntimeError if swallows else ValueError):
        coroutine.close()

    async with ASYNCIO.package.RedisLock(f"{name}:other", client=client, acquire_time=2):
        pass
    if not swallows:
        await until(ASYNCIO, lambda: not background_tasks().tasks() and not direct.exists(key))
    await asyncio.sleep(EXCHANGE)  # it would be cancelled
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# The loop is closed over open connections, as a program may do.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", [hold, hold_and_fail, hold_regardless])
def test_waiters_of_a_closed_loop_start_no_work_in_another(server, name, monkeypatch, work, caplog):
    ignored, started = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: ignored.append(failure.exc_value))

    async def leave_waiters():
        client = AsyncioFront().client(server)
        for _ in range(4):
            await begun(work(client, name))

    async def collect():
        client = AsyncioFront().client(server)
        async with ASYNCIO.package.RedisLock(f"{name}:other", client=client):
            gc.collect()
            await asyncio.sleep(0)
            started.extend(background_tasks().tasks())
        await client.aclose()

    gc.disable()
    try:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)
        loop.run_until_complete(leave_waiters())
        loop.close()
        del loop
        asyncio.run(collect())
        gc.collect()
    finally:
        gc.enable()

    assert "GeneratorExit" not in repr(ignored) or work is hold_regardless
    assert started == []
    assert [record for record in caplog.records if record.name == "redis_lock_decorators"] == []


# As above, and asyncio reports the tasks.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_are_closed_during_exchanges_are_freed(server, name):
    async def request():
        client, batcher = AsyncioFront().client(server), RequestBatcher()
        transport = pool_transport(batcher, client)
        await batcher.exchange(transport, ("BLPOP", name, 0), monotonic() + 60)

    before = loops()
    for _ in range(10):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)
        loop.run_until_complete(begun(request()))
        loop.close()
        del loop

    assert loops() - before <= 2  # the last ones are forgotten when there is another


def loops():
    for _ in range(3):
        gc.collect()
    return sum(issubclass(type(one), asyncio.BaseEventLoop) for one in gc.get_objects())


async def test_collected_async_generator_is_closed_once(front, server, direct, name):
    """The lock is held until the clean-up of its body has ended, and no other task closes that."""

    @redis_lock(name, client=ASYNCIO.client(server), expire=30)
    async def steps():
        try:
            yield 1
        finally:
            await asyncio.sleep(0.1)
            held.append(direct.exists(f"sys:lock:{name}"))

    held, errors = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    gc.disable()
    try:
        generator = steps()
        await generator.__anext__()
        cycle = [generator]
        cycle.append(cycle)
        del generator, cycle
        gc.collect()
    finally:
        gc.enable()

    await until(ASYNCIO, lambda: held and not direct.exists(f"sys:lock:{name}"))
    gc.collect()

    assert held == [1]
    assert errors == []
