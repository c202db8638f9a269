"""How many function calls one use of a lock takes: a figure that machine load does not change.

    python benchmarks/steps.py [--workers 4] [--seconds 1] [--most 40]

Threads of one process acquire one lock in a loop: alone, in its queue, and as a cohort. All calls
meanwhile are counted, including those on the background thread, and divided by the acquisitions.
Counting is slow, so times mean nothing here; CPU time is measured by contended.py.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any

import redis

from redis_lock_decorators import RedisLock
from redis_lock_decorators.testing import LocalServer

#: What is counted: its title, the number of workers (0: ``--workers``), and ``wait``.
WAYS = (("uncontended", 1, "queue"), ("queue", 0, "queue"), ("cohort", 0, "cohort"))


class Steps:
    """Counts calls on all threads that are started from now on."""

    def __init__(self) -> None:
        self._counting = False
        self._by_thread: dict[int, Counter[str]] = {}
        threading.setprofile(self)

    def begin(self) -> None:
        """Start counting from zero."""
        self._by_thread, self._counting = {}, True

    def end(self) -> None:
        """Stop counting."""
        self._counting = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._counting and event in ("call", "c_call"):
            found = self._by_thread.setdefault(threading.get_ident(), Counter())
            found[called(frame) if event == "call" else f"C {argument.__qualname__}"] += 1

    def total(self) -> Counter[str]:
        """The calls of all threads, by function."""
        return sum(self._by_thread.values(), Counter())


def called(frame: FrameType) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # not before Python 3.11
    return f"{os.path.basename(code.co_filename)} {name}"


def counted(steps: Steps, port: int, workers: int, wait: str, seconds: float) -> int:
    """How many times the lock was acquired while calls were counted."""
    turns, over = [0] * workers, threading.Event()
    client = redis.Redis(port=port)

    def work(number: int) -> None:
        while not over.is_set():
            with RedisLock("steps", client=client, acquire_time=None, wait=wait):
                turns[number] += 1

    started = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in started:
        thread.start()
    time.sleep(seconds / 4)  # connections are open, scripts loaded
    steps.begin()
    before = sum(turns)
    time.sleep(seconds)
    after = sum(turns)
    steps.end()
    over.set()
    for thread in started:
        thread.join()
    return after - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=0, help="list this many functions")
    options = parser.parse_args()
    steps = Steps()  # before the background thread starts
    for title, workers, wait in WAYS:
        with LocalServer() as server:
            workers = workers or options.workers
            turns, found = (
                counted(steps, server.port, workers, wait, options.seconds),
                steps.total(),
            )
        in_c = sum(number for name, number in found.items() if name.startswith("C "))
        own = (found.total() - in_c) / turns
        print(f"{title:12} {own:6.1f} Python calls, {in_c / turns:6.1f} C calls per acquisition")
        for name, number in found.most_common(options.most):
            print(f"{number / turns:12.2f} {name}")


if __name__ == "__main__":
    main()
