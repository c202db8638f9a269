"""A block belongs to its lock: whoever enters, runs or leaves it, it is kept, told and let go."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import gc
import os
import sys
import threading
import time
import weakref

import pytest
from support.fronts import LEGACY, do
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until
from support.workers import in_child

import redis_lock_decorators
from redis_lock_decorators import LockError, LockLostError, LockTimeoutError, RedisLock, redis_lock
from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._shared.lease_base import _entered
from redis_lock_decorators.lock import Lock

FRONTS = TIDY_FRONTS

asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
#: A coroutine that is thrown away in a block of asyncio cannot wait for what its end does.
abandons = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

pytestmark = pytest.mark.usefixtures("tidy")


def make(front, server, name, **options):
    """A lock on a name, with a client of its own."""
    return front.package.RedisLock(name, client=front.client(server), **options)


async def elsewhere(front, work):
    """What a call gives a thread or task of its own, which has ended by then."""

    async def call():
        return await do(work())

    (result,) = await front.elsewhere(call)
    return result


async def enter(front, lock):
    """Enter a block elsewhere."""
    return await elsewhere(front, getattr(lock, "__enter__", None) or lock.__aenter__)


async def leave(front, lock):
    """Leave a block elsewhere; what it raises."""
    end = getattr(lock, "__exit__", None) or lock.__aexit__
    return await elsewhere(front, lambda: end(None, None, None))


# Blocks that move


async def test_a_block_entered_in_one_place_and_left_in_another_is_kept_and_let_go(
    front, direct, name, server
):
    lock, told = (
        make(
            front, server, name, expire=0.6, on_lost=lambda *client_state: told.append(client_state)
        ),
        [],
    )

    await enter(front, lock)
    gc.collect()
    await front.sleep(1.2)
    held = direct.exists(f"sys:lock:{name}")
    error = await leave(front, lock)

    assert held
    assert error is None
    assert told == []
    assert not direct.exists(f"sys:lock:{name}")


async def test_the_loss_of_a_block_that_moved_is_told(front, direct, name, server):
    lock, told = (
        make(
            front, server, name, expire=0.6, on_lost=lambda *client_state: told.append(client_state)
        ),
        [],
    )

    await enter(front, lock)
    direct.delete(f"sys:lock:{name}")
    await until(front, lambda: told)
    error = await leave(front, lock)

    assert isinstance(error, LockLostError)
    assert [why for _, why in told] == ["its key is gone"]


async def test_a_block_that_nobody_can_leave_is_renewed_no_more(front, direct, name, server):
    lock = make(front, server, name, expire=0.6)
    await enter(front, lock)

    del lock
    gc.collect()

    await front.sleep(1.0)
    assert not direct.exists(f"sys:lock:{name}")


async def test_of_several_blocks_each_leaves_its_own(front, direct, name, server):
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


async def test_where_it_is_unclear_which_block_is_left_none_outlives_its_lease(
    front, direct, name, server
):
    lock, told = (
        make(front, server, name, expire=0.6, on_lost=lambda lease, why: told.append(lease)),
        [],
    )
    lost = await enter(front, lock)
    direct.delete(lost.key)
    await until(front, lambda: told)
    held = await enter(front, lock)

    error = await leave(front, lock)

    assert "they are no longer renewed" in str(error)
    assert error.lock_name == name
    await until(front, lambda: not direct.exists(held.key))
    await until(front, lambda: len(told) == 2)
    assert told == [lost, held]


async def test_what_was_never_entered_cannot_be_left(front, server, name):
    error = await leave(front, make(front, server, name))

    assert isinstance(error, LockError)
    assert "did not enter" in str(error)


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
def test_a_generator_left_by_break_lets_go(server, direct, name):
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


@asyncio_only
@abandons
@pytest.mark.parametrize("shared", [False, True])
def test_a_task_that_nobody_can_wake_takes_its_lock_with_it(server, direct, name, shared):
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


# Leases that move


async def test_a_lease_outlives_the_thread_or_task_that_took_it(front, direct, server, name):
    lock = make(front, server, name, expire=0.6)
    lease = await elsewhere(front, lock.acquire)
    first = lease.deadline

    await until(front, lambda: time.monotonic() > first + 0.3)

    assert not lease.lost
    assert await do(lease.owned())
    await do(lease.release())


class Within:
    """A coroutine's steps, taken in another context by whoever waits for it."""

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


async def test_who_entered_a_block_that_moves_may_wait_for_it(front, server, name):
    client, context = front.client(server), contextvars.copy_context()
    lock, same = [
        front.package.RedisLock(name, client=client, acquire_time=wait) for wait in (5, 0.05)
    ]

    if front is BLOCKING:
        context.run(lock.__enter__)
    else:
        await Within(context, lock.__aenter__())
    with pytest.raises(LockTimeoutError):  # as another may leave the block meanwhile
        async with front.held(same):
            pass
    with pytest.raises(LockError, match="wait for itself"):
        if front is BLOCKING:
            context.run(same.acquire)
        else:
            await Within(context, same.acquire())
    await leave(front, lock)
    async with front.held(same):
        pass


async def test_who_handed_a_lease_on_may_wait_for_it(front, server, name):
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


def test_leases_left_elsewhere_are_not_remembered(server, name):
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

    assert len(seen) <= 1
    assert len(lock._blocks) == 0


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_made_during_a_request_is_refused_at_once(server, direct, name):
    lease = BLOCKING.package.RedisLock(name, client=server.client()).acquire()
    entered, may_end = threading.Event(), threading.Event()

    def busy():
        with lease._mutex:  # as a request of another thread has it
            entered.set()
            may_end.wait(20)

    thread = threading.Thread(target=busy)
    thread.start()
    entered.wait(20)
    said = [in_child(lease.release), in_child(lease.extend)]
    may_end.set()
    thread.join()

    assert all("LockNotOwnedError" in one for one in said)
    assert lease.owned()
    lease.release()


# Generators


def rows(server, name):
    """A generator under a lock that is noticed to be lost soon, and what its steps did."""
    done, told = [], []

    @redis_lock(name, client=server.client(), expire=0.6, on_lost=lambda *_: told.append(1))
    def steps():
        for number in range(3):
            yield number
            done.append(number)

    return steps, done, told


def test_the_steps_of_a_generator_may_be_taken_by_threads_that_end(server, direct, name):
    steps, done, told = rows(server, name)
    generator = steps()

    thread = threading.Thread(target=next, args=(generator,))
    thread.start()
    thread.join()
    time.sleep(1.2)

    assert direct.exists(f"sys:lock:{name}")
    assert list(generator) == [1, 2]
    assert (done, told) == ([0, 1, 2], [])


def test_a_generator_that_lost_its_lock_takes_no_further_step(server, direct, name, caplog):
    steps, done, told = rows(server, name)

    with pytest.raises(LockLostError):
        for _ in steps():
            direct.delete(f"sys:lock:{name}")
            while not told:
                time.sleep(0.01)

    assert done == []
    caplog.clear()  # a trace refers to the client, whose connections would be left


@asyncio_only
@pytest.mark.parametrize("cancels", [True, False])
def test_an_async_generator_that_lost_its_lock_takes_no_further_step(server, direct, name, cancels):
    done, told = [], []

    async def test():
        @redis_lock(
            name,
            client=ASYNCIO.client(server),
            expire=0.6,
            cancel_on_lost=cancels,
            on_lost=lambda *_: told.append(1),
        )
        async def steps():
            for number in range(3):
                yield number
                done.append(number)

        with pytest.raises(LockLostError):
            async for _ in steps():
                direct.delete(f"sys:lock:{name}")
                await until(ASYNCIO, lambda: told)

    ASYNCIO.run(test())
    assert done == ([] if cancels else [0, 1, 2])


# Whose lease is the current one


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
def test_each_world_has_its_own_current_lease(server, name):
    async def test():
        tasks, threads = ASYNCIO.package, BLOCKING.package
        async with tasks.RedisLock(f"{name}:a", client=ASYNCIO.client(server)) as outer:
            assert threads.current_lease() is None
            with threads.RedisLock(f"{name}:b", client=server.client()) as inner:
                assert threads.current_lease() is inner
                assert tasks.current_lease() is outer

    ASYNCIO.run(test())


# on_lost


def test_an_async_on_lost_of_a_blocking_lock_runs(server, direct, name):
    told = []

    async def on_lost(lease, why):
        await asyncio.sleep(0)
        told.append(why)

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
    while len(told) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert told == ["its key is gone"] * 2


async def test_on_lost_runs_in_the_context_of_the_holder(front, direct, server, name):
    request = contextvars.ContextVar("request", default="nobody's")
    client, told = front.client(server), []

    async def take(number):
        request.set(number)

        def on_lost(lease, why):
            told.append((number, request.get()))

        own = {"client": client, "expire": 0.6, "cancel_on_lost": False, "on_lost": on_lost}
        return await do(front.package.RedisLock(f"{name}:{number}", **own).acquire())

    leases = [await elsewhere(front, lambda number=number: take(number)) for number in range(3)]
    direct.delete(*[lease.key for lease in leases])
    await until(front, lambda: len(told) == 3)

    assert sorted(told) == [(0, 0), (1, 1), (2, 2)]


async def test_no_timer_keeps_the_context_of_who_took_a_lock(front, server, name):
    request = contextvars.ContextVar("request")
    client, found = front.client(server), []

    class Request:
        pass

    async def connect():
        async with front.held(front.package.RedisLock(f"{name}:x", client=client, expire=0.1)):
            pass
        await front.sleep(0.5)  # for the timer of this lease, and what it began, to be over

    async def serve():
        mine = Request()
        request.set(mine)
        found.append(weakref.ref(mine))
        async with front.held(front.package.RedisLock(f"{name}:a", client=client, expire=3)):
            await front.sleep(0.15)  # it is the first that needs a timer

    async def keep():
        await front.sleep(0.05)
        async with front.held(front.package.RedisLock(f"{name}:b", client=client, expire=3)):
            await until(front, lambda: gc.collect() >= 0 and found[0]() is None)

    await elsewhere(front, connect)
    serving = functools.partial(elsewhere, front, serve)  # a task that is done has its context
    assert await front.elsewhere(serving, keep) == [None, None]


async def test_an_on_lost_that_is_cancelled_is_logged(front, direct, name, caplog, server):
    def on_lost(lease, why):
        raise asyncio.CancelledError("of a future whose result it wanted")

    lock = make(front, server, name, expire=0.6, on_lost=on_lost, cancel_on_lost=False)
    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            await until(front, lambda: lease.lost)
    await until(front, lambda: "on_lost of lock" in caplog.text)
    caplog.clear()  # a trace refers to the client, whose connections would be left


@asyncio_only
def test_a_loss_that_another_task_finds_cancels_the_holder(server, direct, name):
    async def test():
        from redis_lock_decorators.asyncio import RedisLock

        async def beat(lease):
            direct.delete(lease.key)
            with pytest.raises(LockLostError):
                await lease.extend(10)

        with pytest.raises(LockLostError):
            async with RedisLock(name, client=ASYNCIO.client(server), expire=60) as lease:
                beating = asyncio.ensure_future(beat(lease))
                await asyncio.sleep(30)
        await beating

    started = time.monotonic()
    ASYNCIO.run(test())
    assert time.monotonic() - started < 25


# Errors


async def test_the_error_of_a_busy_lock_is_no_cycle(front, direct, server, name):
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
    ways = [block, step, redis_lock(name, **options)(body), lambda: lock.call(body)]
    gc.collect()
    gc.disable()
    try:
        kept = [way for way in ways if not await _is_freed(way)]
    finally:
        gc.enable()
    direct.delete(f"sys:lock:{name}")

    assert kept == []


async def _is_freed(way):
    """Whether the error of a call is freed without the garbage collector."""

    class Mark:
        pass

    mark = Mark()
    mine = weakref.ref(mark)
    try:
        await do(way())
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


def _stand_in_released(client, name):
    lock = Lock(client, f"sys:lock:{name}", timeout=20, thread_local=False)
    assert lock.acquire()
    return lock.release


@pytest.mark.parametrize("take", [_released, _left, _stand_in_released])
def test_what_a_finalizer_lets_go_keeps_the_background_from_nothing(
    server, direct, name, take, monkeypatch
):
    # The garbage collector may call a finalizer on any thread.
    release_keys, lease_loop = take(BLOCKING.client(server), name), background_loop()
    went_on, send = threading.Event(), BlockingPort.send

    async def wait(port, *command, until):
        assert went_on.wait(20)
        return await send(port, *command, until=until)

    monkeypatch.setattr(BlockingPort, "send", wait)
    lease_loop.call(release_keys)
    lease_loop.call(went_on.set)
    lease_loop.call(lease_loop.rest)  # of some of these nothing is renewed

    end = time.monotonic() + 20
    while direct.exists(f"sys:lock:{name}"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_blocking_lock_of_another_task_is_refused_and_stops_no_event_loop(server, name):
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
