"""A program whose threads are greenlets: many of them wait for locks, hold, renew and lose them.

Run by tests as a program of its own: ``python -m support.greenlets KIND PORT SECONDS COUNT``.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

#: How the standard library may have been patched, and when: everything before any import,
#: everything after ours, threads only, everything while the background thread is there.
#: (redis-py itself does not work if eventlet patches after it was imported.)
KINDS = (
    *("gevent-all", "gevent-late", "gevent-threads", "gevent-used"),
    *("eventlet-all", "eventlet-threads"),
)


def patch(library: str, what: str) -> None:
    """Put greenlets in the place of threads, and of all that waits unless of ``threads`` only."""
    if library == "gevent":
        from gevent import monkey

        monkey.patch_thread() if what == "threads" else monkey.patch_all()
    else:
        import eventlet

        names = {"thread": True, "os": False, "select": False, "socket": False, "time": False}
        eventlet.monkey_patch(**names if what == "threads" else {})


class Program:
    """Greenlets that take locks for some time.

    Attributes:
        facts: what happened, and how often.
    """

    def __init__(self, port: int, seconds: float) -> None:
        import redis

        self.client = redis.Redis(port=port, health_check_interval=0)
        self.other = redis.Redis(port=port)
        self.client_state: Counter[str] = Counter()
        self.end = time.monotonic() + seconds
        self.inside: Counter[str] = Counter()
        self.doomed: set[str] = set()

    def lock(self, name: str, **options: Any) -> Any:
        from redis_lock_decorators import RedisLock

        def on_lost(lease: Any, why: str) -> None:
            self.client_state["on_lost" if name in self.doomed else "lost without cause"] += 1

        options = {"client": self.client, "on_lost": on_lost, "acquire_time": None, **options}
        return RedisLock(name, **options)

    def pause(self, seconds: float) -> None:
        """Wait, and let others go on."""
        threading.Event().wait(seconds)

    def waits(self, number: int) -> None:
        """Wait for what others hold, in both ways."""
        while time.monotonic() < self.end:
            name, way = (("queued", "queue"), ("shared", "cohort"))[number % 2]
            with self.lock(name, wait=way, expire=5):
                self.client_state["overlaps"] += self.inside[name]
                self.inside[name] += 1
                self.pause(0.003)
                self.inside[name] -= 1
                self.client_state[way] += 1

    def renews(self, number: int) -> None:
        """Hold a lock for longer than its lease."""
        while time.monotonic() < self.end:
            with self.lock(f"kept:{number}", expire=1.5):
                self.pause(2.5)
                self.client_state["kept"] += 1
            self.pause(random.random())

    def loses(self, number: int) -> None:
        """Be told of a lost lock."""
        from redis_lock_decorators import LockLostError

        while time.monotonic() < self.end:
            name = f"lost:{number}:{random.random()}"
            self.doomed.add(name)
            try:
                with self.lock(name, expire=1.5) as lease:
                    self.other.delete(lease.key)
                    self.pause(2)
                    self.client_state["told in the block"] += lease.lost
            except LockLostError:
                self.client_state["told at the end"] += 1

    def loops(self) -> None:
        """Run event loops meanwhile."""
        while time.monotonic() < self.end:
            asyncio.run(asyncio.sleep(0))
            self.client_state["loops"] += 1
            self.pause(0.05)

    def run(self, count: int) -> None:
        """Do all that, in so many greenlets."""
        works: list[Any] = [(self.loops,), (self.loses, 0), (self.loses, 1)]
        works += [(self.renews, number) for number in range(count // 4)]
        works += [(self.waits, number) for number in range(count - len(works))]
        threads = [threading.Thread(target=self.guarded, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.client_state["left"] = sum(
            not key.endswith(b":released") for key in self.client.keys("*")
        )
        self.client_state["ended"] = 1

    def guarded(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.client_state[f"failed: {type(error).__name__}: {error}"] += 1


def main(kind: str, port: int, seconds: float, count: int) -> None:
    library, _, what = kind.partition("-")
    if what in ("all", "threads"):
        patch(library, what)
    import redis_lock_decorators  # noqa: F401

    if what == "late":
        patch(library, what)
    elif what == "used":  # the background thread is there already
        import redis

        from redis_lock_decorators import RedisLock

        with RedisLock("before", client=redis.Redis(port=port), expire=2):
            time.sleep(1)
        patch(library, what)  # the thread looks at the lease once more
    program = Program(port, seconds)
    program.run(count)
    print(repr(dict(program.client_state)), flush=True)
    os._exit(0)  # what eventlet does at the end of a program is not what is tested


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
