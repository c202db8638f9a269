"""Blocks of the imitated classes, some of which are interrupted or never left."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio
from support.interruptions import Interrupted, Interruption, interrupt_every_line
from support.waiting import until

from redis_lock_decorators.compat import pottery, python_redis_lock

#: Key, error of a block that has lost its lock, and how to create a lock with a time to live.
KINDS: dict[str, tuple[str, type[Exception], Callable[[Any, float], Any]]] = {
    "python-redis-lock": (
        "lock:report",
        python_redis_lock.NotAcquired,
        lambda conn, expire: python_redis_lock.Lock(conn, "report", expire=expire),
    ),
    "pottery": (
        "redlock:report",
        pottery.ReleaseUnlockedLock,
        lambda conn, expire: pottery.Redlock(
            key="report", masters={conn}, auto_release_time=expire
        ),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def enter_and_suspend(lock: Any) -> Iterator[None]:
    """Enter a block in a generator, which suspends within it."""
    with lock:
        yield


def lose(conn: Any, key: str) -> None:
    """End whatever holds the lock, as if it had expired."""
    assert conn.delete(key)


def test_block_interrupted_at_any_line_leaves_nothing_behind(kind: Any, conn: Any) -> None:
    key, _, lock_with = kind
    shared = lock_with(conn, 30)
    with shared:
        pass  # loads what is loaded once

    def work(interruption: Interruption) -> None:
        try:
            with interruption, shared:
                pass
        finally:
            until(lambda: not conn.exists(key), 5, lambda: interruption.location)
            assert shared._blocks._open == [], interruption.location
            with shared:
                assert conn.exists(key), interruption.location
            assert not conn.exists(key), interruption.location

    assert interrupt_every_line(work) > 100


def test_suspended_block_that_was_lost_does_not_take_the_exits_of_others(
    kind: Any, conn: Any
) -> None:
    key, lost, lock_with = kind
    shared = lock_with(conn, 30)
    suspended = enter_and_suspend(shared)
    next(suspended)
    lose(conn, key)

    for _ in range(3):
        with shared:
            assert conn.exists(key)
        assert not conn.exists(key)
    with shared:
        with pytest.raises(lost):
            next(suspended)
        assert conn.exists(key)
    assert not conn.exists(key)


def test_nested_blocks_are_told_of_their_own_losses(kind: Any, conn: Any) -> None:
    key, lost, lock_with = kind
    shared = lock_with(conn, 30)

    with pytest.raises(lost), shared:
        lose(conn, key)
        with shared:
            assert conn.exists(key)
        assert not conn.exists(key)


def test_exits_of_stacks_release_what_they_entered_in_any_order(kind: Any, conn: Any) -> None:
    key, lost, lock_with = kind
    shared = lock_with(conn, 30)
    first, second = ExitStack(), ExitStack()
    first.enter_context(shared)
    lose(conn, key)
    second.enter_context(shared)

    second.close()
    assert not conn.exists(key)
    with pytest.raises(lost):
        first.close()


def test_block_left_by_another_thread_releases_its_own_lock(kind: Any, conn: Any) -> None:
    key, lost, lock_with = kind
    shared = lock_with(conn, 30)
    stacks = [ExitStack() for _ in range(2)]
    for stack in stacks:
        thread = threading.Thread(target=stack.enter_context, args=(shared,))
        thread.start()
        thread.join(10)
        if stack is stacks[0]:
            lose(conn, key)

    stacks[1].close()
    assert not conn.exists(key)
    with pytest.raises(lost):
        stacks[0].close()


def test_renewal_ends_with_a_block_that_is_never_left(conn: Any) -> None:
    shared = python_redis_lock.Lock(conn, "report", expire=0.6, auto_renewal=True)
    enter, leave = shared.__enter__, shared.__exit__
    enter()
    time.sleep(1)
    assert conn.exists("lock:report")

    del enter, leave  # as if it was interrupted before its body

    until(lambda: not conn.exists("lock:report"))


def test_tasks_leave_blocks_of_a_shared_object_in_any_order(server: Any) -> None:
    async def test() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            shared = pottery.AIORedlock(key="report", masters={conn}, auto_release_time=30)
            first, second = AsyncExitStack(), AsyncExitStack()
            await asyncio.create_task(first.enter_async_context(shared))
            assert await conn.delete("redlock:report")
            await second.enter_async_context(shared)

            await asyncio.create_task(second.aclose())
            assert not await conn.exists("redlock:report")
            with pytest.raises(pottery.ReleaseUnlockedLock):
                await first.aclose()
            assert shared._blocks._open == []

    asyncio.run(test())


def test_cancelled_exit_of_a_task_releases(server: Any) -> None:
    async def use(lock: Any) -> None:
        async with lock:
            asyncio.current_task().cancel()  # type: ignore[union-attr]

    async def test() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            shared = pottery.AIORedlock(key="report", masters={conn}, auto_release_time=30)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(use(shared))
            assert not await conn.exists("redlock:report")

    asyncio.run(test())


@pytest.mark.parametrize("method", ["acquire", "release"])
def test_call_interrupted_at_any_line_leaves_nothing_held(
    kind: Any, conn: Any, method: str
) -> None:
    key, _, lock_with = kind
    warm = lock_with(conn, 30)
    warm.acquire()
    warm.release()  # loads what is loaded once

    def work(interruption: Interruption) -> None:
        lock = lock_with(conn, 30)
        if method == "release":
            lock.acquire()
        try:
            with interruption:
                getattr(lock, method)()
        finally:
            # The first line of ``release`` has not begun it.
            if interruption.happened and not is_first_line_of_release(interruption):
                until(lambda: not conn.exists(key), 5, lambda: interruption.location)
            conn.delete(key)

    assert interrupt_every_line(work) > 50


def is_first_line_of_release(interruption: Interruption) -> bool:
    path, _, number = interruption.location.rpartition(":")
    line = linecache.getline(path, int(number))
    return "compat" in path and ("release_completely(" in line or "partial(self._release" in line)


def own_release(lock_with: Any, conn: Any, before: Callable[[], object]) -> Any:
    """Return a lock with a ``release`` of its own, which does more."""
    lock = lock_with(conn, 30)

    class Own(type(lock)):  # type: ignore[misc]
        def release(self, **options: Any) -> None:
            before()
            super().release(**options)

    lock.__class__ = Own
    return lock


def test_own_release_of_a_block_does_not_release_the_lock_of_another(kind: Any, conn: Any) -> None:
    """The lease ends while the ``release`` of a subclass does something else."""
    key, lost, lock_with = kind
    entered, left = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def enter_second() -> None:
        with shared:
            entered.set()
            left.wait(10)

    def lose_first() -> None:
        if not threads:
            lose(conn, key)
            threads.append(threading.Thread(target=enter_second))
            threads[0].start()
            assert entered.wait(10)

    shared = own_release(lock_with, conn, lose_first)
    with pytest.raises(lost), shared:
        pass

    assert conn.exists(key)
    left.set()
    threads[0].join(10)
    assert not conn.exists(key)


def test_nested_blocks_with_an_own_release_release_their_own_locks(kind: Any, conn: Any) -> None:
    key, lost, lock_with = kind
    shared = own_release(lock_with, conn, lambda: None)

    with pytest.raises(lost), shared:
        lose(conn, key)
        with shared:
            assert conn.exists(key)
        assert not conn.exists(key)


def test_direct_calls_work_after_a_release_without_an_exit(kind: Any, conn: Any) -> None:
    key, _, lock_with = kind
    shared = lock_with(conn, 30)
    for _ in range(5):
        shared.__enter__()
        shared.release()

    for _ in range(3):
        shared.__enter__()
        assert conn.exists(key)
        shared.__exit__(None, None, None)
        assert not conn.exists(key)
    assert len(shared._blocks._open) <= 2


def test_subclass_of_a_lock_for_tasks_releases_by_its_own_method(server: Any) -> None:
    called: list[str] = []

    class Own(pottery.AIORedlock):
        async def release(self, **options: Any) -> None:
            called.append("release")
            await super().release(**options)

    async def test() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            async with Own(key="report", masters={conn}):
                pass
            assert not await conn.exists("redlock:report")

    asyncio.run(test())
    assert called == ["release"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers run within the first try")
def test_exit_interrupted_before_its_first_line_releases(kind: Any, conn: Any) -> None:
    key, _, lock_with = kind
    shared = lock_with(conn, 30)

    def trace(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "_leave":
            sys.settrace(None)
            raise Interrupted

    before = sys.gettrace()
    try:
        with pytest.raises(Interrupted) as kept, shared:
            sys.settrace(trace)
    finally:
        sys.settrace(before)

    until(lambda: not conn.exists(key))
    assert shared._blocks._open == []
    assert kept.tb is not None  # the exception with its frames is still alive
