"""The memory of a process does not grow with former waiters while one waiter waits."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
from redis import Redis

from redis_lock_decorators import RedisLock
from redis_lock_decorators._flow.queue.entries import SPARE
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter

#: The number of acquisitions of each thread, and of threads.
TIMES, THREADS = SPARE, 3


def records() -> int:
    """The number of waiters that this process stores."""
    gc.collect()
    return sum(type(one) is QueuedWaiter for one in gc.get_objects())


def together(work: Callable[[int], None]) -> None:
    """Run ``work`` in several threads and wait for them."""
    threads = [threading.Thread(target=work, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("name", ["free {}", "busy"])
def test_memory_does_not_grow_with_acquisitions_during_a_wait(direct: Redis, name: str) -> None:
    holder = RedisLock("awaited", client=direct, expire=60).acquire()
    assert holder is not None

    def wait() -> None:
        with RedisLock("awaited", client=direct, acquire_time=60):
            pass

    waiter = threading.Thread(target=wait)
    waiter.start()

    def work(at: int) -> None:
        for _ in range(TIMES):
            with RedisLock(name.format(at), client=direct, acquire_time=60):
                pass

    together(work)
    kept = records()
    holder.release()
    waiter.join()

    assert kept < SPARE + 500
