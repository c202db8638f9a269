"""Subclasses of the drop-in classes, whose ``acquire`` and ``release`` do more."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
import redis
from support.drop_ins import LOST, Kind, counting

from redis_lock_decorators.compat import python_redis_lock


def test_release_that_acquires_again_releases_that_too(kind: Kind, conn: Any) -> None:
    key, base, make = kind

    class Own(base):  # type: ignore[misc, valid-type]
        def release(self) -> None:
            super().release()
            if super().acquire():
                super().release()

    with make(Own, conn):
        pass
    assert not conn.exists(key)


def test_thread_that_a_release_starts_uses_the_lock_as_usual(kind: Kind, conn: Any) -> None:
    key, base, make = kind
    threads: list[threading.Thread] = []

    class Own(base):  # type: ignore[misc, valid-type]
        def release(self) -> None:
            if not threads:
                context = copy_context()
                threads.append(threading.Thread(target=context.run, args=(use,)))
            super().release()

    def use() -> None:
        lock.acquire()
        lock.release()

    lock = make(Own, conn)
    with lock:
        pass
    threads[0].start()
    threads[0].join(10)
    assert not conn.exists(key)


def test_reentrant_lock_is_released_by_its_last_block(kind: Kind, conn: Any) -> None:
    key, base, make = kind
    lock = make(counting(base), conn)
    with lock:
        with lock:
            assert conn.exists(key)
        assert conn.exists(key)
    assert not conn.exists(key)


def test_block_does_not_release_what_another_has_acquired_meanwhile(kind: Kind, conn: Any) -> None:
    """The lock is lost while ``acquire`` does more, and another thread acquires it."""
    key, base, make = kind
    left, entered = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    class Own(base):  # type: ignore[misc, valid-type]
        def acquire(self, *arguments: Any, **options: Any) -> Any:
            is_acquired = super().acquire(*arguments, **options)
            if not threads:
                conn.delete(key)
                threads.append(threading.Thread(target=use))
                threads[0].start()
                assert entered.wait(10)
            return is_acquired

    def use() -> None:
        with lock:
            entered.set()
            left.wait(10)

    lock = make(Own, conn)
    with pytest.raises(LOST), lock:
        pass
    assert conn.exists(key)
    left.set()
    threads[0].join(10)
    assert not conn.exists(key)


@pytest.mark.parametrize("outcome", ["fails", "refuses"])
def test_failed_acquire_leaves_nothing_held(kind: Kind, conn: Any, outcome: str) -> None:
    key, base, make = kind

    class Own(base):  # type: ignore[misc, valid-type]
        def acquire(self, *arguments: Any, **options: Any) -> Any:
            assert super().acquire(*arguments, **options)
            if outcome == "fails":
                raise KeyError("of the subclass")
            return False

    with pytest.raises((KeyError, RuntimeError, *LOST)), make(Own, conn):
        pass
    assert not conn.exists(key)


@pytest.mark.parametrize("error", [redis.ConnectionError, redis.ResponseError, ValueError])
def test_release_that_fails_before_it_begins_leaves_nothing_held(
    kind: Kind, conn: Any, error: type[Exception]
) -> None:
    key, base, make = kind

    class Own(base):  # type: ignore[misc, valid-type]
        def release(self) -> None:
            raise error("of the subclass")

    with pytest.raises(error), make(Own, conn):
        pass
    assert not conn.exists(key)


def test_lock_acquired_by_hand_is_not_released_by_a_lost_block(kind: Kind, conn: Any) -> None:
    key, base, make = kind
    lock = make(base, conn)

    def enter_and_suspend() -> Iterator[None]:
        with lock:
            yield

    suspended = enter_and_suspend()
    next(suspended)
    conn.delete(key)
    lock.acquire()
    with pytest.raises(LOST):
        next(suspended)

    assert conn.exists(key)
    lock.release()
    assert not conn.exists(key)


def test_renewal_goes_on_if_a_release_keeps_the_lock(conn: Any) -> None:
    class Own(python_redis_lock.Lock):
        def release(self) -> None:
            pass

    lock = Own(conn, "report", expire=0.6, auto_renewal=True)
    with lock:
        pass
    time.sleep(1.2)

    assert conn.exists("lock:report")
    python_redis_lock.Lock.release(lock)
    assert not conn.exists("lock:report")


@pytest.mark.parametrize("place", ["class", "instance"])
def test_wrapped_methods_are_called_by_blocks(
    kind: Kind, conn: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, base, make = kind
    lock, called = make(base, conn), list[str]()
    for name in ("acquire", "release"):
        target = base if place == "class" else lock
        method = getattr(target, name)

        def wrapper(*arguments: Any, _method: Any = method, **options: Any) -> Any:
            called.append(_method.__name__)
            return _method(*arguments, **options)

        monkeypatch.setattr(target, name, functools.wraps(method)(wrapper))

    with lock:
        pass
    assert called == ["acquire", "release"]
