"""One worker of a timeline: it enters one lock again and again, and prints what happens and when.

Each line has the seconds of ``time.monotonic()``, which processes of a machine share, and an event.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import redis

from redis_lock_decorators import LockLostError, RedisLock

#: Seconds: the lease, and one turn inside.
EXPIRE, TURN = 2, float(sys.argv[1])
NAME = "report"


def report(event: str) -> None:
    """Print an event in one write, as threads print too."""
    sys.stdout.write(f"{time.monotonic()} {event}\n")
    sys.stdout.flush()


def client() -> redis.Redis:
    """The client of a server, or of the master that Sentinels name."""
    if ports := os.environ.get("SENTINELS"):
        nodes = [("127.0.0.1", int(port)) for port in ports.split(",")]
        watch = redis.sentinel.Sentinel(nodes, sentinel_kwargs={"socket_timeout": 1})
        return watch.master_for("mymaster")
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def turn(lock: RedisLock) -> None:
    """Wait for the lock, and work while it is held."""
    with lock as lease:
        report("enters")
        try:
            done = time.monotonic() + TURN
            while time.monotonic() < done:
                lease.check()
                time.sleep(0.02)
        finally:
            report("leaves")


def main() -> None:
    """Work until the process is killed."""
    server = client()
    while True:
        lock = RedisLock(
            NAME,
            client=server,
            expire=EXPIRE,
            acquire_time=60,
            on_lost=lambda lease, reason: report("notified"),
        )
        report("waits")
        with contextlib.suppress(LockLostError):
            turn(lock)


if __name__ == "__main__":
    main()
