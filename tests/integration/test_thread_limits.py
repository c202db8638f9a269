"""Locks of a process that can start no more threads, as at the limit of its container."""

from __future__ import annotations

import threading
import time

import pytest
from support.waiting import until

from redis_lock_decorators import LockError, RedisLock
from redis_lock_decorators._io.background import worker
from redis_lock_decorators.lock import Lock


@pytest.fixture
def limited(monkeypatch):
    """No thread renews locks, and none can be started."""
    ours = [thread for thread in threading.enumerate() if thread.name == worker.NAME]
    until(lambda: not any(thread.is_alive() for thread in ours))

    def full(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(worker.WorkerThread, "start", full)
        yield patch


@pytest.mark.parametrize("kind", ["RedisLock", "drop-in"])
def test_lock_that_no_thread_would_renew_is_not_acquired(limited, direct, name, kind):
    lock = (
        RedisLock(name, client=direct, expire=2)
        if kind == "RedisLock"
        else Lock(direct, name, timeout=2, auto_renew=True)
    )
    with pytest.raises(LockError, match="no thread can be started to renew it"):
        lock.acquire()
    assert not direct.keys(f"*{name}")

    limited.undo()
    with lock:
        time.sleep(2.5)


def test_lock_without_renewal_needs_no_thread(limited, direct, name):
    with RedisLock(name, client=direct, auto_renew=False):
        pass


def test_exception_that_interrupts_the_start_of_the_thread_is_raised(direct, name, monkeypatch):
    """Python raises another error in its place, although the thread has started."""
    ours = [thread for thread in threading.enumerate() if thread.name == worker.NAME]
    until(lambda: not any(thread.is_alive() for thread in ours))
    start = worker.WorkerThread.start

    def interrupted(thread):
        start(thread)
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(worker.WorkerThread, "start", interrupted)
        RedisLock(name, client=direct, expire=2).acquire()
    assert not direct.keys(f"*{name}")

    with RedisLock(name, client=direct, expire=2):
        pass
