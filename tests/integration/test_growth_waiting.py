"""While somebody waits, nothing is kept of those who waited and do not any more."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
from redis import Redis

from redis_lock_decorators import RedisLock
from redis_lock_decorators._flow.queue.entries import SPARE
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter

#: Acquisitions of each thread, and threads.
TIMES, THREADS = SPARE, 3


def records() -> int:
    """What is kept of waiters in this process."""
    gc.collect()
    return sum(type(one) is QueuedWaiter for one in gc.get_objects())


def together(work: Callable[[int], None]) -> None:
    """Work in some threads until all are done."""
    threads = [threading.Thread(target=work, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("name", ["free {}", "busy"])
def test_memory_does_not_grow_with_acquisitions_beside_a_waiter(direct: Redis, name: str) -> None:
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
