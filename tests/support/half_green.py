"""A program whose sockets and sleeps are patched for greenlets, but not its threads and locks.

Run by tests as a separate program: ``python -m support.half_green LIBRARY PORT``.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def main(library: str, port: int) -> None:
    if library == "gevent":
        from gevent import monkey, spawn

        monkey.patch_all(thread=False)
        join: Any = "join"
    else:
        import eventlet

        eventlet.monkey_patch(thread=False)
        spawn, join = eventlet.spawn, "wait"
    import redis

    from redis_lock_decorators import RedisLock

    client, entered, renewed = redis.Redis(port=port), [], []

    def is_renewed() -> bool:
        with RedisLock("alone", client=client, expire=0.6) as lease:
            time.sleep(1.5)
            return not lease.lost

    idle = spawn(is_renewed)  # while no other greenlet runs
    alone = idle.get() if library == "gevent" else idle.wait()

    def waits(number: int) -> None:
        with RedisLock("awaited", client=client, acquire_time=20, expire=30):
            time.sleep(0.01)
            entered.append(number)

    def holds() -> None:
        with RedisLock("held", client=client, expire=1.5) as lease:
            time.sleep(3)
            renewed.append(not lease.lost)

    works = [spawn(holds), *[spawn(waits, number) for number in range(40)]]
    for work in works:
        getattr(work, join)()
    found = {"entered": len(entered), "renewed": renewed, "renewed while idle": [alone]}
    print(repr(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
