"""Blocks of subclasses that acquire nothing, or give it back: they release nothing of others."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator
from typing import Any

import pytest
from support.drop_ins import LOST, Kind, counting
from support.holding import Holder

from redis_lock_decorators.compat import python_redis_lock
from redis_lock_decorators.lock import Lock


def failing_open(base: type[Any]) -> type[Any]:
    """A subclass whose blocks are entered also if the lock is busy."""

    class Own(base):  # type: ignore[misc]
        def acquire(self, *arguments: Any, **options: Any) -> bool:
            with contextlib.suppress(python_redis_lock.AlreadyAcquired):
                super().acquire(blocking=False)
            return True

    return Own


@pytest.mark.parametrize("error", [RuntimeError("of the subclass"), KeyboardInterrupt()])
def test_inner_block_that_fails_does_not_release_the_outer_one(
    kind: Kind, conn: Any, error: BaseException
) -> None:
    key, base, make = kind
    lock = make(counting(base, error), conn)
    with lock:
        with pytest.raises(type(error)), lock:
            pass
        assert conn.exists(key)
    assert not conn.exists(key)


@pytest.mark.parametrize("has_release", [False, True])
def test_block_without_the_lock_does_not_release_that_of_another_thread(
    kind: Kind, conn: Any, has_release: bool
) -> None:
    key, base, make = kind
    own = failing_open(base)
    if has_release:
        own.release = lambda self: base.release(self)  # type: ignore[attr-defined]
    lock = make(own, conn)
    with Holder(lock):
        with pytest.raises(LOST), lock:
            pass
        assert conn.exists(key)
    assert not conn.exists(key)


def test_block_releases_what_its_thread_has_acquired_before(kind: Kind, conn: Any) -> None:
    """The subclass acquires only if it does not hold the lock yet."""
    key, base, make = kind

    class Own(base):  # type: ignore[misc, valid-type]
        is_held = False

        def acquire(self, *arguments: Any, **options: Any) -> Any:
            self.is_held = self.is_held or super().acquire(*arguments, **options)
            return self.is_held

    lock = make(Own, conn)
    lock.acquire()
    with lock:
        assert conn.exists(key)
    assert not conn.exists(key)


def test_last_block_releases_the_lock_that_the_first_one_has_left(kind: Kind, conn: Any) -> None:
    """The subclass counts its blocks, which are left in the order in which they were entered."""
    key, base, make = kind
    lock = make(counting(base), conn)
    with contextlib.ExitStack() as last:
        with contextlib.ExitStack() as first:
            first.enter_context(lock)
            last.enter_context(lock)
        assert conn.exists(key)
    assert not conn.exists(key)


@pytest.mark.parametrize("is_own", [False, True])
def test_exit_that_is_called_by_hand_releases_what_its_thread_has_entered(
    kind: Kind, conn: Any, is_own: bool
) -> None:
    """A subclass calls it, or its methods are called by their names."""
    key, base, make = kind
    if make(base, conn).__dict__.get("thread_local") is False:
        pytest.skip("the token is shared, as that of redis-py")

    class Own(base):  # type: ignore[misc, valid-type]
        def __enter__(self) -> Any:
            return super().__enter__()

        def __exit__(self, *failure: Any) -> Any:
            return super().__exit__(*failure)

    lock = make(Own if is_own else base, conn)
    lock.__enter__()
    conn.delete(key)
    with Holder(lock):
        with pytest.raises(LOST):
            lock.__exit__(None, None, None)
        assert conn.exists(key)
    assert not conn.exists(key)


def test_acquire_that_gives_back_does_not_release_that_of_another_thread(
    kind: Kind, conn: Any
) -> None:
    """Its lease ends before, and another thread acquires the lock."""
    key, base, make = kind
    holders: list[Any] = []

    class Own(base):  # type: ignore[misc, valid-type]
        def acquire(self, *arguments: Any, **options: Any) -> bool:
            super().acquire(*arguments, **options)
            if not holders:
                holders.append(Holder(self))
                conn.delete(key)
                holders[0].__enter__()
                super().release()
                return False
            return True

    with pytest.raises((*LOST, RuntimeError)), make(Own, conn):
        pass
    assert conn.exists(key)
    holders[0].__exit__(None, None, None)
    assert not conn.exists(key)


@pytest.mark.parametrize("error", [ValueError("of the subclass"), KeyboardInterrupt()])
def test_what_a_failed_release_has_acquired_again_is_released(
    kind: Kind, conn: Any, error: BaseException
) -> None:
    key, base, make = kind

    class Own(base):  # type: ignore[misc, valid-type]
        def release(self) -> None:
            super().release()
            super().acquire()
            raise error

    with pytest.raises(type(error)), make(Own, conn):
        pass
    assert not conn.exists(key)


def test_each_thread_is_told_of_its_own_loss_though_they_call_one_exit(
    kind: Kind, conn: Any
) -> None:
    key, base, make = kind
    lock = make(base, conn)
    enter, leave = lock.__enter__, lock.__exit__
    failures: list[BaseException] = []

    def use() -> None:
        enter()
        try:
            leave(None, None, None)
        except LOST as error:
            failures.append(error)

    enter()
    conn.delete(key)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join(10)

    assert failures == []
    assert not conn.exists(key)
    with pytest.raises(LOST):
        leave(None, None, None)


def test_exit_that_is_called_by_hand_repeatedly_releases_each_time(kind: Kind, conn: Any) -> None:
    key, base, make = kind
    lock = make(base, conn)
    leave = lock.__exit__
    for _ in range(3):
        lock.__enter__()
        leave(None, None, None)
        assert not conn.exists(key)


def test_block_without_the_lock_does_not_release_that_which_is_being_entered(
    kind: Kind, conn: Any
) -> None:
    """Another thread's ``acquire`` has the lock, and has not returned."""
    key, base, make = kind
    acquired, left = threading.Event(), threading.Event()

    class Own(base):  # type: ignore[misc, valid-type]
        def acquire(self, *arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                return True
            super().acquire(*arguments, **options)
            acquired.set()
            return left.wait(10)

    lock, holds = make(Own, conn), list[int]()

    def use() -> None:
        with lock:
            holds.append(conn.exists(key))

    thread = threading.Thread(target=use)
    with pytest.raises(LOST), lock:
        thread.start()
        assert acquired.wait(10)
    left.set()
    thread.join(10)

    assert holds == [1]
    assert not conn.exists(key)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_collected_generator_does_not_release_that_of_another_block(kind: Kind, conn: Any) -> None:
    """In a reference cycle, its block is deleted before its exit is called."""
    key, base, make = kind
    lock = make(base, conn)

    def suspended() -> Generator[None, Any, None]:
        with lock:
            itself = yield
            yield
            del itself

    def enter_and_lose() -> None:
        generator = suspended()
        next(generator)
        generator.send(generator)
        conn.delete(key)

    enter_and_lose()
    with lock:
        gc.collect()
        assert conn.exists(key)
    assert not conn.exists(key)


def test_interrupted_release_does_not_release_that_of_another_thread(
    conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises when the lock is free, and another thread of the object has it."""
    lock = python_redis_lock.Lock(conn, "report", expire=30)
    holder = Holder(lock)

    def notify(*_: object) -> None:
        monkeypatch.undo()
        holder.__enter__()
        raise KeyboardInterrupt

    monkeypatch.setattr("redis_lock_decorators.compat.python_redis_lock.lock.notify", notify)
    lock.acquire()
    with pytest.raises(KeyboardInterrupt):
        lock.release()

    assert conn.exists("lock:report")
    holder.__exit__(None, None, None)
    assert not conn.exists("lock:report")


def test_error_of_a_block_says_that_the_subclass_has_refused(conn: Any) -> None:
    class Own(Lock):
        def acquire(self, *arguments: Any, **options: Any) -> bool:
            return False

    lock = Own(conn, "report", timeout=30)
    with pytest.raises(LOST, match=r"not acquired, as Own\.acquire returned False"), lock:
        pass
