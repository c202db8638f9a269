"""A program that patches threads to be greenlets while it holds a lock, and continues.

Run by tests as a separate program: ``python -m support.late_green PORT``.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def main(port: int) -> None:
    import redis

    from redis_lock_decorators import RedisLock

    losses: list[str] = []

    def on_lost(lease: Any, why: str) -> None:
        losses.append(lease.lock_name)

    options: Any = {"client": redis.Redis(port=port), "expire": 1.5, "on_lost": on_lost}
    kept, lost = (RedisLock(name, **options).acquire() for name in ("kept", "lost"))
    time.sleep(0.05)
    from gevent import monkey

    monkey.patch_all()
    time.sleep(2.5)
    found: dict[str, Any] = {"renewed": not kept.lost}
    redis.Redis(port=port).delete(lost.key)
    time.sleep(1.5)
    found["reported as lost"] = losses
    kept.release()
    with RedisLock("new", **options) as lease:
        time.sleep(2.5)
        found["renewed anew"] = not lease.lost
    print(repr(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
