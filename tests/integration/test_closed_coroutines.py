"""Coroutines that the garbage collector closes release their locks, without awaiting."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
from support.fronts import LEGACY, AsyncioFront
from support.leftovers import ASYNCIO, until

from redis_lock_decorators import redis_lock
from redis_lock_decorators._io.background.supervised import background_tasks

FRONTS = [ASYNCIO]
pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


async def hold(client, name):
    async with ASYNCIO.package.RedisLock(name, client=client, expire=30):
        await asyncio.sleep(100)


async def hold_drop_in(client, name):
    from redis_lock_decorators.asyncio.lock import Lock

    async with client.lock(f"sys:lock:{name}", timeout=30, lock_class=Lock):
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


# The loop is closed over open connections, as a program may do.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_waiters_of_a_closed_loop_start_no_work_in_another(server, name, monkeypatch):
    ignored, started = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: ignored.append(failure.exc_value))

    async def leave_waiters():
        client = AsyncioFront().client(server)
        for _ in range(4):
            await begun(hold(client, name))

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

    assert "GeneratorExit" not in repr(ignored)
    assert started == []
