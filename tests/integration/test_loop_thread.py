"""The background thread of blocking programs comes and goes, and misses nothing."""

from __future__ import annotations

import threading
import time

from redis_lock_decorators import RedisLock


def present() -> bool:
    return any(thread.name == "redis_lock_decorators" for thread in threading.enumerate())


def test_a_lease_is_renewed_though_the_thread_went_with_the_last_waiter(server, name):
    client = server.client()
    # The thread means to look at this one after 1.75 s, and is gone by then.
    with RedisLock(f"{name}:before", client=client, expire=6):
        client.set(f"sys:lock:{name}", "stranger", px=500)
    assert RedisLock(name, client=client).acquire(acquire_time=0.2) is None
    end = time.monotonic() + 5
    while present() and time.monotonic() < end:  # the listener lingers for a second
        time.sleep(0.05)

    with RedisLock(name, client=client, expire=3.8) as lease:
        time.sleep(4)

        assert not lease.lost
