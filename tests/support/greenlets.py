"""A program whose threads are greenlets: many of them wait for locks, hold, renew and lose them.

Run by tests as a separate program: ``python -m support.greenlets KIND PORT SECONDS COUNT``.
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
#: everything after ours, threads only, everything but ``select``, everything while the background
#: thread is there.
#: (redis-py itself does not work if eventlet patches after it was imported.)
KINDS = (
    *("gevent-all", "gevent-late", "gevent-threads", "gevent-noselect", "gevent-used"),
    *("eventlet-all", "eventlet-threads"),
)


def patch(library: str, what: str) -> None:
    """Patch "all", or all but "select" or threads, or only "threads".

    Args:
        library: gevent or eventlet.
        what: "all", "noselect", "nothread" or "threads".
    """
    if library == "gevent":
        from gevent import monkey

        if what == "threads":
            monkey.patch_thread()
        else:
            monkey.patch_all(select=what != "noselect", thread=what != "nothread")
    else:
        import eventlet

        names = {"thread": True, "os": False, "select": False, "socket": False, "time": False}
        given = {"threads": names, "nothread": {"thread": False}}.get(what, {})
        eventlet.monkey_patch(**given)


class Program:
    """Greenlets that use locks for some time.

    Attributes:
        counts: how often each event happened.
    """

    def __init__(self, port: int, seconds: float) -> None:
        import redis

        self.client = redis.Redis(port=port, health_check_interval=0)
        self.other = redis.Redis(port=port)
        self.counts: Counter[str] = Counter()
        self.end = time.monotonic() + seconds
        self.inside: Counter[str] = Counter()
        self.doomed: set[str] = set()

    def lock(self, name: str, **options: Any) -> Any:
        from redis_lock_decorators import RedisLock

        def on_lost(lease: Any, why: str) -> None:
            self.counts["on_lost" if name in self.doomed else "lost without cause"] += 1

        options = {"client": self.client, "on_lost": on_lost, "acquire_time": None, **options}
        return RedisLock(name, **options)

    def pause(self, seconds: float) -> None:
        """Wait, and let other greenlets run."""
        threading.Event().wait(seconds)

    def waits(self, number: int) -> None:
        """Wait for locks that others hold, in a queue or a cohort."""
        while time.monotonic() < self.end:
            name, strategy = (("queued", "queue"), ("shared", "cohort"))[number % 2]
            with self.lock(name, wait=strategy, expire=5):
                self.counts["overlaps"] += self.inside[name]
                self.inside[name] += 1
                self.pause(0.003)
                self.inside[name] -= 1
                self.counts[strategy] += 1

    def renews(self, number: int) -> None:
        """Hold a lock for longer than its lease."""
        while time.monotonic() < self.end:
            with self.lock(f"kept:{number}", expire=1.5):
                self.pause(2.5)
                self.counts["kept"] += 1
            self.pause(random.random())

    def lose(self, number: int) -> None:
        """Lose a lock and count the notifications."""
        from redis_lock_decorators import LockLostError

        while time.monotonic() < self.end:
            name = f"lost:{number}:{random.random()}"
            self.doomed.add(name)
            try:
                with self.lock(name, expire=1.5) as lease:
                    self.other.delete(lease.key)
                    self.pause(2)
                    self.counts["losses noticed in the block"] += lease.lost
            except LockLostError:
                self.counts["losses raised at the end"] += 1

    def loops(self) -> None:
        """Run event loops at the same time."""
        while time.monotonic() < self.end:
            asyncio.run(asyncio.sleep(0))
            self.counts["loops"] += 1
            self.pause(0.05)

    def run(self, count: int) -> None:
        """Run all of these in ``count`` greenlets."""
        works: list[Any] = [(self.loops,), (self.lose, 0), (self.lose, 1)]
        works += [(self.renews, number) for number in range(count // 4)]
        works += [(self.waits, number) for number in range(count - len(works))]
        threads = [threading.Thread(target=self.guarded, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.counts["left"] = sum(not key.endswith(b":released") for key in self.client.keys("*"))
        self.counts["ended"] = 1

    def guarded(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.counts[f"failed: {type(error).__name__}: {error}"] += 1


def main(kind: str, port: int, seconds: float, count: int) -> None:
    library, _, what = kind.partition("-")
    if what in ("all", "threads", "noselect"):
        patch(library, what)
    import redis_lock_decorators  # noqa: F401

    if what == "late":
        patch(library, what)
    elif what == "used":  # the background thread already runs
        import redis

        from redis_lock_decorators import RedisLock

        with RedisLock("before", client=redis.Redis(port=port), expire=2):
            time.sleep(1)
        patch(library, what)  # the thread checks the lease once more
    program = Program(port, seconds)
    program.run(count)
    print(repr(dict(program.counts)), flush=True)
    os._exit(0)  # eventlet's work at exit is not tested here


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
