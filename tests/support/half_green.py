"""A program whose sockets are patched for greenlets, but not its threads and locks.

Locks that need a thread are refused; the others start none.
Run by tests as a separate program: ``python -m support.half_green LIBRARY PORT``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from support.greenlets import patch


def refused(work: Any) -> str:
    """The beginning of the error that names the lock, and what else is known of it."""
    from redis_lock_decorators import ConfigurationError

    try:
        work()
    except ConfigurationError as error:
        return f"{error.lock_name}: {str(error)[:32]}"
    return "not refused"


def main(library: str, port: int) -> None:
    patch(library, "nothread")
    import redis

    from redis_lock_decorators import RedisLock, acquire_lock, redis_lock, release_lock
    from redis_lock_decorators.lock import Lock

    client, inside, entered = redis.Redis(port=port), [], []
    without: Any = {"client": client, "auto_renew": False}
    drop_in: Any = {"timeout": 5, "blocking_timeout": 1}
    works = {
        "renewed": RedisLock("x", client=client).acquire,
        "entered": RedisLock("x", client=client).__enter__,
        "once": lambda: RedisLock("x", client=client).acquire(blocking=False),
        "on_lost": RedisLock("x", **without, wait="poll", on_lost=print).acquire,
        "queue": RedisLock("x", **without).acquire,
        "cohort": RedisLock("x", **without, wait="cohort").acquire,
        "called": lambda: RedisLock("x", client=client).call(print),
        "decorated": redis_lock("x", client=client)(print),
        "drop-in renewed": Lock(client, "x", timeout=5, blocking=False, auto_renew=True).acquire,
        "drop-in waiting": Lock(client, "x", **drop_in).acquire,
    }
    outcomes = {refused(work) for work in works.values()}

    def waits() -> None:
        with RedisLock("awaited", **without, wait="poll", acquire_time=30, expire=30):
            inside.append(len(inside))
            time.sleep(0.01)
            entered.append(len(inside))
            inside.clear()
        identifier: Any = acquire_lock(client, "function", acquire_time=30)
        assert release_lock(client, "function", identifier)

    if library == "gevent":
        import gevent

        gevent.joinall([gevent.spawn(waits) for _ in range(20)], raise_error=True)
    else:
        import eventlet

        for thread in [eventlet.spawn(waits) for _ in range(20)]:
            thread.wait()
    once = Lock(client, "sys:lock:once", timeout=5, blocking=False)
    with once:
        held = client.exists("sys:lock:once")
    with RedisLock("free", **without, acquire_time=0), RedisLock(["a", "b"], **without):
        pass
    found = {
        "refused": sorted(outcomes),
        "entered": entered,
        "drop-in": held,
        "keys": client.keys("*"),
        "threads": threading.active_count(),
    }
    print(repr(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
