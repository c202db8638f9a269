"""The background thread of blocking programs may end and start again."""

from __future__ import annotations

import threading
import time

from redis_lock_decorators import RedisLock


def present() -> bool:
    return any(thread.name == "redis_lock_decorators" for thread in threading.enumerate())


def test_lease_is_renewed_after_the_background_thread_has_ended(server, name):
    client = server.client()
    # The thread plans to renew this one after 1.75 s, and has ended by then.
    with RedisLock(f"{name}:before", client=client, expire=6):
        client.set(f"sys:lock:{name}", "another", px=500)
    assert RedisLock(name, client=client).acquire(acquire_time=0.2) is None
    end = time.monotonic() + 5
    while present() and time.monotonic() < end:  # the subscriber remains for a second
        time.sleep(0.05)

    with RedisLock(name, client=client, expire=3.8) as lease:
        time.sleep(4)

        assert not lease.lost
