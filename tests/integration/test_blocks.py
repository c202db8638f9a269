"""Blocks that are entered, run or left in different threads, tasks or contexts."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
import weakref

import pytest
from support.blocks import enter, leave, make
from support.fronts import LEGACY, do
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until

import redis_lock_decorators
from redis_lock_decorators import LockError, LockLostError, LockTimeoutError, RedisLock, redis_lock
from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators.lock import Lock

FRONTS = TIDY_FRONTS

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
#: A coroutine that is discarded inside a block cannot await the exit of the block.
abandons = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

pytestmark = pytest.mark.usefixtures("tidy")


async def test_block_left_elsewhere_is_renewed_and_released(front, direct, name, server):
    lost = []
    lock = make(front, server, name, expire=1.5, on_lost=lambda *report: lost.append(report))

    await enter(front, lock)
    gc.collect()
    await front.sleep(2.2)
    held = direct.exists(f"sys:lock:{name}")
    error = await leave(front, lock)

    assert held
    assert error is None
    assert lost == []
    assert not direct.exists(f"sys:lock:{name}")


async def test_loss_is_reported_in_a_block_left_elsewhere(front, direct, name, server):
    lost = []
    lock = make(front, server, name, expire=0.6, on_lost=lambda *report: lost.append(report))

    await enter(front, lock)
    direct.delete(f"sys:lock:{name}")
    await until(front, lambda: lost)
    error = await leave(front, lock)

    assert isinstance(error, LockLostError)
    assert [why for _, why in lost] == ["its key is gone"]


async def test_block_that_cannot_be_left_is_no_longer_renewed(front, direct, name, server):
    lock = make(front, server, name, expire=0.6)
    await enter(front, lock)

    del lock
    gc.collect()

    await front.sleep(1.0)
    assert not direct.exists(f"sys:lock:{name}")


async def test_each_exit_releases_the_lease_of_its_own_block(front, direct, name, server):
    lock = make(front, server, name, expire=0.6, cancel_on_lost=False)

    with pytest.raises(LockLostError):
        async with front.held(lock) as outer:
            direct.delete(outer.key)
            await until(front, lambda: outer.lost)
            inner = await enter(front, lock)
            assert not inner.lost
    assert direct.exists(inner.key)
    await leave(front, lock)

    assert not direct.exists(inner.key)


async def test_ambiguous_exit_ends_the_renewal_of_all_blocks(front, direct, name, server):
    lost = []
    lock = make(front, server, name, expire=0.6, on_lost=lambda lease, why: lost.append(lease))
    first = await enter(front, lock)
    direct.delete(first.key)
    await until(front, lambda: lost)
    held = await enter(front, lock)

    error = await leave(front, lock)

    assert "they are no longer renewed" in str(error)
    assert error.lock_name == name
    await until(front, lambda: not direct.exists(held.key))
    await until(front, lambda: len(lost) == 2)
    assert lost == [first, held]


async def test_exit_without_enter_is_refused(front, server, name):
    error = await leave(front, make(front, server, name))

    assert isinstance(error, LockError)
    assert "did not enter" in str(error)


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
def test_generator_left_by_break_releases_the_lock(server, direct, name):
    async def test():
        from redis_lock_decorators.asyncio import RedisLock

        async def items():
            async with RedisLock(name, client=ASYNCIO.client(server), expire=0.6):
                yield 1
                yield 2

        async for _ in items():
            break
        gc.collect()
        await until(ASYNCIO, lambda: not direct.exists(f"sys:lock:{name}"))

    ASYNCIO.run(test())
    assert not direct.exists(f"sys:lock:{name}")


@asyncio_only
@abandons
@pytest.mark.parametrize("shared", [False, True])
def test_lock_of_a_garbage_collected_task_is_released(server, direct, name, shared):
    async def test():
        from redis_lock_decorators.asyncio import RedisLock

        made = [RedisLock(name, client=ASYNCIO.client(server), expire=60)]
        lock = made[0] if shared else None

        async def work():
            async with made.pop():
                await asyncio.Event().wait()

        task = weakref.ref(asyncio.ensure_future(work()))
        await until(ASYNCIO, lambda: direct.exists(f"sys:lock:{name}"))
        await until(ASYNCIO, lambda: gc.collect() >= 0 and task() is None)
        await until(ASYNCIO, lambda: not direct.exists(f"sys:lock:{name}"))
        del lock

    ASYNCIO.run(test())
    assert not direct.exists(f"sys:lock:{name}")


async def test_error_of_a_busy_lock_forms_no_reference_cycle(front, direct, server, name):
    direct.set(f"sys:lock:{name}", "another")
    options = {"client": front.client(server), "acquire_time": 0}
    lock = front.package.RedisLock(name, **options)

    def plain():
        raise AssertionError

    async def coroutine():
        raise AssertionError

    def generator():
        yield

    async def async_generator():
        yield

    async def block():
        if front is BLOCKING:
            with lock:
                pass
        else:
            async with lock:
                pass

    async def step():
        if front is BLOCKING:
            return next(redis_lock(name, **options)(generator)())
        return await anext(redis_lock(name, **options)(async_generator)())

    body = plain if front is BLOCKING else coroutine
    attempts = [block, step, redis_lock(name, **options)(body), lambda: lock.call(body)]
    gc.collect()
    gc.disable()
    try:
        kept = [attempt for attempt in attempts if not await _is_freed(attempt)]
    finally:
        gc.enable()
    direct.delete(f"sys:lock:{name}")

    assert kept == []


async def _is_freed(attempt):
    """Whether the error of an attempt is freed without the garbage collector."""

    class Mark:
        pass

    mark = Mark()
    mine = weakref.ref(mark)
    try:
        await do(attempt())
    except LockTimeoutError as error:
        error.mark = mark
    del mark
    return mine() is None


def _released(client, name):
    return redis_lock_decorators.RedisLock(name, client=client).acquire().release


def _left(client, name):
    lease = redis_lock_decorators.RedisLock(name, client=client).acquire()
    contextvars.copy_context().run(lease.__enter__)
    return lambda: lease.__exit__(None, None, None)


def _redispy_lock_released(client, name):
    lock = Lock(client, f"sys:lock:{name}", timeout=20, thread_local=False)
    assert lock.acquire()
    return lock.release


@pytest.mark.parametrize("acquire", [_released, _left, _redispy_lock_released])
def test_release_by_a_finalizer_does_not_block_the_background(
    server, direct, name, acquire, monkeypatch
):
    # The garbage collector may call a finalizer on any thread.
    release_keys, lease_loop = acquire(BLOCKING.client(server), name), background_loop()
    went_on, send = threading.Event(), BlockingPort.send

    async def wait(port, *command, until, **options):
        assert went_on.wait(20)
        return await send(port, *command, until=until, **options)

    monkeypatch.setattr(BlockingPort, "send", wait)
    lease_loop.call(release_keys)
    lease_loop.call(went_on.set)
    lease_loop.call(lease_loop.stop_if_idle)  # after which the loop may end

    end = time.monotonic() + 20
    while direct.exists(f"sys:lock:{name}"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_blocking_lock_held_by_another_task_is_refused(server, name):
    client = BLOCKING.client(server)
    lock = RedisLock(name, client=client, acquire_time=20)
    found = []

    async def first() -> None:
        with lock:
            await asyncio.sleep(0.05)

    async def second() -> None:
        try:
            with lock:
                pass
        except LockError as error:
            found.append(error)

    async def both() -> None:
        await asyncio.gather(first(), second())

    asyncio.run(both())
    assert "another task of this event loop" in str(found[0])
    with lock:
        pass
