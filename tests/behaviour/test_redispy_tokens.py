"""Tokens of the drop-in for redis-py's Lock: which thread, task or process may release."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time

import pytest
from support.fronts import FRONTS, LEGACY, do

import redis_lock_decorators.lock
from redis_lock_decorators import ConfigurationError, LockNotOwnedError

if not LEGACY:
    import redis_lock_decorators.asyncio.lock


@pytest.fixture
def make(front, conn, name):
    """Make locks on the test's key."""

    def lock(**options):
        return front.package.lock.Lock(conn, name, **options)

    return lock


def text(value):
    return value.decode() if isinstance(value, bytes) else value


async def error_of(front, work):
    """The exception of a method called by another thread or task."""

    async def call():
        return await do(work())

    (result,) = await front.elsewhere(call)
    return result


@pytest.mark.parametrize("wrong", ["", b"", 5, b"\xff"])
async def test_invalid_token_is_refused(front, client, make, wrong):
    with pytest.raises(ConfigurationError, match="token="):
        await do(make().acquire(token=wrong))


@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("token", ["mine", b"mine", "möin"])
async def test_given_token_is_held_by_one_holder_only(front, client, name, make, timeout, token):
    lock, rival = make(timeout=timeout), make(timeout=timeout)

    assert await do(lock.acquire(token=token)) is True
    assert await do(rival.acquire(False, token=token)) is False
    assert rival.local.token is None

    assert text(client.get(name)) == text(token)
    assert lock.local.token == (token if isinstance(token, bytes) else token.encode())
    assert client.pttl(name) == -1 if timeout is None else 29_000 < client.pttl(name) <= 30_000
    assert await do(lock.owned())
    await do(lock.release())
    assert not client.exists(name)


async def test_token_set_on_another_lock_object_releases(front, client, name, make):
    first, second = make(timeout=30), make(timeout=30)
    assert await do(first.acquire())

    second.local.token = first.local.token.decode()
    assert await do(second.owned())
    assert await do(second.extend(30)) is True
    await do(second.release())

    assert second.local.token is None
    assert not client.exists(name)


async def test_wrong_token_releases_nothing(front, client, name, make):
    lock = make(timeout=30)
    client.set(name, "external")

    lock.local.token = "forged"  # noqa: S105  # a lock's token is no password
    with pytest.raises(LockNotOwnedError, match="exte"):
        await do(lock.release())

    assert text(client.get(name)) == "external"


async def test_each_thread_or_task_that_acquires_has_its_own_token(front, client, name, make):
    lock = make(timeout=30)
    assert await do(lock.acquire())

    async def check():
        if front.name == "asyncio":
            assert await do(lock.acquire(False)) is False
        return lock.local.token, await do(lock.owned()), await do(lock.locked())

    async def misuse(call):
        if front.name == "asyncio":
            assert await do(lock.acquire(False)) is False
        return await do(call())

    assert await front.elsewhere(check) == [(None, False, True)]
    for call in (lock.release, lock.reacquire, lambda: lock.extend(10)):
        error = await error_of(front, lambda call=call: misuse(call))
        assert isinstance(error, LockNotOwnedError)
        assert "thread_local=False" in str(error)
        assert error.lock_name == name
    assert await do(lock.owned())
    await do(lock.release())


@pytest.mark.skipif(len(FRONTS) < 2, reason="redis-py 3.5 has no asyncio")
@pytest.mark.parametrize("timeout", [None, 30])
async def test_task_releases_a_lock_acquired_by_another(front, conn, client, name, make, timeout):
    """As with redis-py's lock, whose token is thread-local."""
    if front.name != "asyncio":
        pytest.skip("a thread's token is its own, as with redis-py")
    lock = make(timeout=timeout)

    async def call(method, *arguments):
        return await method(*arguments)

    async def items():
        async with front.package.lock.Lock(conn, name, timeout=timeout):
            yield 1
            yield 2

    async def until_free():
        end = time.monotonic() + 20
        while client.exists(name):
            assert time.monotonic() < end
            await asyncio.sleep(0.01)

    await asyncio.create_task(call(lock.__aenter__))
    gc.collect()
    assert lock.local.token
    assert await asyncio.create_task(call(lock.owned))
    await asyncio.create_task(call(lock.__aexit__, None, None, None))
    assert not client.exists(name)
    assert await lock.acquire()
    await asyncio.create_task(call(lock.release))
    assert not client.exists(name)
    await asyncio.create_task(call(lock.__aenter__))
    await lock.__aexit__(None, None, None)  # although this task has acquired the lock before
    assert not client.exists(name)
    async for _ in items():
        break
    gc.collect()
    await until_free()
    async with contextlib.AsyncExitStack() as stack:
        await asyncio.wait_for(stack.enter_async_context(lock), 5)
    assert not client.exists(name)


@pytest.mark.skipif(len(FRONTS) < 2, reason="redis-py 3.5 has no asyncio")
async def test_task_releases_no_lock_of_several_other_tasks(front, client, name, make):
    if front.name != "asyncio":
        pytest.skip("a thread's token is its own")
    lock = make(timeout=30)

    async def call(method):
        return await method()

    await asyncio.create_task(call(lock.acquire))
    client.delete(name)
    await asyncio.create_task(call(lock.acquire))

    with pytest.raises(LockNotOwnedError):
        await asyncio.create_task(call(lock.release))

    assert client.exists(name)
    client.delete(name)


async def test_assigned_token_does_not_replace_another_token(front, client, make):
    lock = make(timeout=30)
    assert await do(lock.acquire())
    token = lock.local.token

    async def put():
        lock.local.token = "another"  # noqa: S105  # a lock's token is no password
        return lock.local.token

    assert await front.elsewhere(put) == [b"another"]
    assert lock.local.token == token
    await do(lock.release())


async def test_shared_token_serves_all_threads_and_tasks(front, client, make):
    lock = make(timeout=30, thread_local=False)
    assert await do(lock.acquire())
    token = lock.local.token

    async def use():
        assert lock.local.token == token
        assert await do(lock.owned())
        assert await do(lock.extend(10)) is True
        await do(lock.release())

    assert await front.elsewhere(use) == [None]
    assert lock.local.token is None
    assert not await do(lock.locked())


# The garbage of other tests is collected here too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_tokens_of_ended_tasks_and_threads_are_forgotten(front, client, make):
    lock = make(timeout=0.05)

    async def acquire():
        assert await do(lock.acquire())
        return

    assert await front.elsewhere(acquire) == [None]
    await front.sleep(0.06)  # until it expires and the event loop drops its reference to the task
    lock.local.token = None
    gc.collect()

    token_slots = [found for found in gc.get_objects() if type(found).__name__ == "TokenSlot"]
    assert not [
        token_slot
        for token_slot in token_slots
        if token_slot.claim and token_slot.claim.keys == (lock._key,)
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_does_not_release_its_parents_lock(client, name):
    lock = redis_lock_decorators.lock.Lock(client, name, timeout=30)
    assert lock.acquire()

    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert lock.local.token is None
            assert not lock.owned()
            with pytest.raises(LockNotOwnedError, match="parent"):
                lock.release()
            status = 0
        finally:
            os._exit(status)

    assert os.waitpid(child, 0)[1] == 0
    assert lock.owned()
    lock.release()


@pytest.mark.skipif(len(FRONTS) < 2, reason="redis-py 3.5 has no asyncio")
async def test_call_belongs_to_the_task_that_makes_it(front, client, make):
    if front.name != "asyncio":
        pytest.skip("for tasks only")
    lock = make(timeout=30)

    assert await asyncio.wait_for(lock.acquire(), 5)
    assert lock.local.token
    assert await asyncio.create_task(lock.owned())
    assert await asyncio.wait_for(lock.extend(10), 5)
    await asyncio.wait_for(lock.release(), 5)

    assert lock.local.token is None
