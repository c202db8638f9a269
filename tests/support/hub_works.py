"""A program whose greenlets leave a lock to the garbage collector, which runs in the hub.

Run by tests as a separate program: ``python -m support.hub_works LIBRARY PORT WHAT``.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from support.greenlets import patch


def in_hub(library: str, function: Callable[[], object]) -> None:
    """Call a function in the hub."""
    if library == "gevent":
        import gevent

        gevent.get_hub().loop.run_callback(function)
    else:
        import eventlet

        eventlet.hubs.get_hub().schedule_call_global(0, function)


def main(library: str, port: int, what: str) -> None:
    patch(library, what)
    import redis

    from redis_lock_decorators import RedisLock, redis_lock

    client = redis.Redis(port=port)
    # With native threads only locks that need none are supported.
    without: Any = {"auto_renew": False, "wait": "poll"} if what == "nothread" else {}

    @redis_lock("generator", client=client, expire=60, **without)
    def generate() -> Any:
        yield 1
        yield 2

    gc.disable()
    box: dict[str, Any] = {"generator": generate()}
    box["box"] = box
    next(box["generator"])
    lease = RedisLock("lease", client=client, expire=60, min_hold=1.5, **without).acquire()
    del box
    time.sleep(0.05)
    errors: list[str] = []

    def collect() -> None:
        try:
            gc.collect()
            lease.release()
        except BaseException as error:
            errors.append(repr(error))

    in_hub(library, collect)
    time.sleep(0.5)
    left = [key for key in client.keys("*") if key == b"sys:lock:generator"]
    ends = 0 < client.pttl("sys:lock:lease") <= 1500
    if what == "nothread" and threading.active_count() > 1:
        errors.append("a native thread was started")
    print(repr({"left": left, "errors": errors, "ends": ends}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
