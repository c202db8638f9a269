"""A program whose threads are greenlets, with jobs on native threads, each with its own hub.

Run by tests as a separate program: ``python -m support.native_jobs LIBRARY PORT``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from support.greenlets import patch

#: Greenlet libraries that run jobs on native threads.
LIBRARIES = ("gevent", "eventlet")


def on_native_thread(library: str, job: Callable[[], object]) -> object:
    """The result of a job on a native thread; other greenlets run at the same time."""
    if library == "gevent":
        import gevent

        return gevent.get_hub().threadpool.apply(job)
    from eventlet import tpool

    return tpool.execute(job)


def main(library: str, port: int) -> None:
    patch(library, "all")
    import redis

    from redis_lock_decorators import RedisLock

    # A client's sockets belong to the hub that opened them: each job has its own client.
    ours, other = redis.Redis(port=port), redis.Redis(port=port)
    found: dict[str, Any] = {"reported as lost": []}

    def on_lost(lease: Any, why: str) -> None:
        found["reported as lost"].append(lease.lock_name)

    def first() -> None:
        with RedisLock("first", client=redis.Redis(port=port), expire=1.5):
            pass

    def waits() -> bool:
        with RedisLock(
            "awaited", client=redis.Redis(port=port), expire=1.5, acquire_time=20
        ) as lease:
            time.sleep(2.5)
            return not lease.lost

    on_native_thread(library, first)
    options = {"client": ours, "expire": 1.5, "on_lost": on_lost}
    kept, lost = (RedisLock(name, **options).acquire() for name in ("kept", "lost"))
    other.delete(lost.key)
    time.sleep(2.5)
    found["renewed"] = not kept.lost
    other.set("sys:lock:awaited", "x~", px=1000)
    found["waited and renewed"] = on_native_thread(library, waits)
    found["renewed meanwhile"] = not kept.lost
    kept.release()
    print(repr(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
