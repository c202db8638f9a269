"""Exceptions raised by signal handlers, at each line of the package."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis.asyncio as aioredis
from support.interruptions import (
    RAISED,
    Interrupted,
    Interruption,
    interrupt_every_line,
    raise_by_turns,
)
from support.proxy import FaultProxy

from redis_lock_decorators import RedisLock, acquire_lock, redis_lock
from redis_lock_decorators import asyncio as async_locks
from redis_lock_decorators.compat.python_redis_lock import Lock as PythonRedisLock
from redis_lock_decorators.compat.python_redis_lock import lock as python_redis_lock
from redis_lock_decorators.lock import Lock as RedisPyLock

# A coroutine that is interrupted before its first step is never awaited.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True, params=RAISED)
def kind(request, monkeypatch):
    """The class of the exception that is raised."""
    raise_by_turns(monkeypatch, request.param)
    return request.param


@pytest.fixture
def client(server):
    return server.client()


def test_interrupted_block_leaves_no_key(client, name):
    lock = RedisLock(name, client=client)
    with lock:
        pass

    def work(interruption):
        try:
            with interruption, lock:
                pass
        finally:
            assert not client.exists(f"sys:lock:{name}"), interruption.location

    assert interrupt_every_line(work) > 50


def test_interrupted_acquire_leaves_no_key(client, name):
    lock = RedisLock(name, client=client)

    def work(interruption):
        with interruption:
            try:
                lease = lock.acquire()
            except Interruption.kind:
                assert not client.exists(f"sys:lock:{name}"), interruption.location
                raise
        lease.release()

    assert interrupt_every_line(work) > 30


def test_interrupted_block_of_redispys_lock_leaves_no_key(client, name):
    def work(interruption):
        try:
            with interruption, RedisPyLock(client, name):
                pass
        finally:
            assert not client.exists(name), interruption.location

    assert interrupt_every_line(work) > 50


@pytest.mark.parametrize("make", [RedisPyLock, PythonRedisLock])
def test_interrupted_release_of_a_replacement_leaves_no_key(client, name, make, kind):
    if make is PythonRedisLock and kind is not Interrupted:
        pytest.skip("it reports errors of requests as its own")

    def work(interruption):
        lock = make(client, name)
        lock.acquire()
        try:
            with interruption:
                lock.release()
        finally:
            if lock.locked():
                kept.append(interruption.location)
                lock.release()

    kept = []
    assert interrupt_every_line(work) > 25
    entry = 5 if make is RedisPyLock else 17  # lines before its first ``try``, and in calls there
    assert len(kept) <= entry, kept


@pytest.mark.parametrize("make", [RedisPyLock, PythonRedisLock])
@pytest.mark.parametrize("end", ["release", "__exit__"])
def test_interrupted_release_leaves_what_another_thread_acquires(
    client, name, make, end, kind, monkeypatch
):
    if kind is not Interrupted:
        pytest.skip("one class suffices: no line is interrupted by itself")

    def acquire_elsewhere(*_):
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        raise kind

    shared = {"thread_local": False} if make is RedisPyLock else {}
    lock = make(client, name, **shared)
    if make is RedisPyLock:  # it holds nothing
        monkeypatch.setattr(lock, "_refuse_unheld", acquire_elsewhere)
    else:
        lock.acquire()
        monkeypatch.setattr(python_redis_lock, "notify", acquire_elsewhere)

    with pytest.raises(kind):
        getattr(lock, end)(*[None] * (3 if end == "__exit__" else 0))

    assert lock.locked()
    lock._lock.release() if make is PythonRedisLock else lock.release()


def test_interrupted_block_of_a_lease_leaves_no_key(client, name):
    lock = RedisLock(name, client=client)

    def work(interruption):
        held = lock.acquire()
        try:
            with interruption, held:
                pass
        finally:
            if "exits.py" in interruption.location:  # not entered yet: the caller still holds it
                held.release()
            assert not client.exists(f"sys:lock:{name}"), interruption.location

    assert interrupt_every_line(work) > 50


def test_task_interrupted_while_entering_a_lease_leaves_no_key(server, client, name):
    async def enter(interruption):
        async with aioredis.Redis(host=server.host, port=server.port) as own:
            held = await async_locks.RedisLock(name, client=own).acquire()
            try:
                with interruption:
                    await held.__aenter__()
            except Interruption.kind:
                assert not client.exists(f"sys:lock:{name}"), interruption.location
                raise
            await held.release()

    assert interrupt_every_line(lambda interruption: asyncio.run(enter(interruption))) > 3


def test_interrupted_call_leaves_no_key(client, name):
    @redis_lock(f"{name}:{{n}}", client=client)
    def decorated(n):
        return n

    def work(interruption):
        try:
            with interruption:
                decorated(1)
        finally:
            assert not client.exists(f"sys:lock:{name}:1"), interruption.location

    assert interrupt_every_line(work) > 50


def test_interrupted_generator_leaves_no_key(client, name):
    @redis_lock(f"{name}:{{n}}", client=client)
    def steps(n):
        yield 1
        yield 2

    def work(interruption):
        try:
            with interruption:
                list(steps(1))
        finally:
            assert not client.exists(f"sys:lock:{name}:1"), interruption.location

    assert interrupt_every_line(work) > 50


def test_interrupted_acquire_lock_leaves_no_key(client, name):
    def work(interruption):
        with interruption:
            try:
                acquire_lock(client, name)
            except Interruption.kind:
                assert not client.exists(f"sys:lock:{name}"), interruption.location
                raise
        client.delete(f"sys:lock:{name}"), interruption.location

    assert interrupt_every_line(work) > 20


def test_interrupted_release_can_be_called_again(client, name):
    lock = RedisLock(name, client=client)

    def work(interruption):
        lease = lock.acquire()
        try:
            with interruption:
                lease.release()
        finally:
            lease.release()
            assert not client.exists(f"sys:lock:{name}"), interruption.location

    assert interrupt_every_line(work) > 20


def test_interrupted_extend_keeps_the_lease_valid(client, name):
    lock = RedisLock(name, client=client)

    def work(interruption):
        with lock as lease:
            deadline = lease.deadline
            try:
                with interruption:
                    lease.extend(20)
            finally:
                assert lease.owned()
                assert lease.deadline >= deadline

    assert interrupt_every_line(work) > 20


def test_reply_of_an_interrupted_request_is_not_read_by_another(server, name):
    """A connection with an outstanding reply is not used again."""
    with FaultProxy(server.host, server.port) as proxy:
        client = proxy.client()
        other = RedisLock(f"{name}:other", client=server.client()).acquire()
        lock, held = RedisLock(name, client=client), RedisLock(f"{name}:other", client=client)

        def work(interruption):
            try:
                with interruption, lock:
                    pass
            finally:
                assert held.acquire(blocking=False) is None

        interrupt_every_line(work)
        other.release()
