"""The scenes of ``redis-lock demo``: several processes, one counter, and a lock or none."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import six

from redis_lock_decorators.cli.demo_outcomes import Outcome, judge
from redis_lock_decorators.cli.demo_workers import (
    EXPIRE,
    PATIENCE,
    STEPS,
    Place,
    Section,
    bound,
    work,
    work_and_hang,
    work_until,
)
from redis_lock_decorators.cli.signals import without_interrupts

WORKERS = 6
AFTERWARDS = 500  # sections to wait for after the kill
NAMES = ("online", "history", "inside", "waits")

processes = multiprocessing.get_context("spawn")


class Scenes:
    """The scenes in one place.

    Args:
        place: where the processes meet.
        client: for this process.
    """

    def __init__(self, place: Place, client: Any) -> None:
        self._place, self._client = place, client

    def side_by_side(self, section: Section) -> Outcome:
        """All workers do all their steps concurrently."""
        self.clear()
        ready = processes.Barrier(WORKERS + 1)
        with running([(work, self._place, ready, section)] * WORKERS) as workers:
            ready.wait(PATIENCE)
            began = time.monotonic()
            self._wait_for_sections(WORKERS * len(STEPS), workers)
            join(workers)
        return self._judged(time.monotonic() - began)

    def kill_inside(self) -> tuple[Outcome, bool]:
        """Kill a worker in its section; return also whether the others entered in time."""
        self.clear()
        ready, stop = processes.Barrier(WORKERS + 1), processes.Event()
        others = [(work_until, self._place, ready, stop)] * (WORKERS - 1)
        with running([(work_and_hang, self._place, ready), *others]) as (victim, *workers):
            ready.wait(PATIENCE)
            began = time.monotonic()
            is_in_time = self._kill(victim)
            self._wait_for_sections(self._done() + AFTERWARDS, workers)
            stop.set()
            join(workers)
        waits = self._client.lrange(self._place.key("waits"), 0, -1)
        longest = " ".join(f"{float(seconds):.2f}" for seconds in waits)
        print(f"  longest wait of each of the others: {longest} s")
        return self._judged(time.monotonic() - began), is_in_time

    def clear(self) -> None:
        """Delete the keys of the scenes."""
        for name in NAMES:
            self._client.delete(self._place.key(name))

    def _done(self) -> int:
        return int(self._client.llen(self._place.key("history")))

    def _judged(self, seconds: float) -> Outcome:
        entries = self._client.lrange(self._place.key("history"), 0, -1)
        writes = [tuple(map(int, six.ensure_str(entry).split(":"))) for entry in entries]
        counted = int(self._client.get(self._place.key("online")) or 0)
        return judge([(step, seen) for step, seen in writes], counted, seconds)

    def _kill(self, victim: Any) -> bool:
        """Kill the victim in its section; True if the others entered when its lease ended."""
        key = self._key_of_the_victim()
        done = self._done()
        time.sleep(0.5)
        left = self._client.pttl(key) / 1000
        victim.kill()
        killed = time.monotonic()
        is_excluded = self._done() == done
        print(f"  killed after {done} sections, before it wrote; its lease has {left:.2f} s left")
        while self._done() == done and time.monotonic() < killed + PATIENCE:
            time.sleep(0.005)
        waited = time.monotonic() - killed
        print(f"  the next section was done {waited:.2f} s after the kill")
        return is_excluded and left - 0.1 < waited < left + EXPIRE  # the machine may be busy

    def _key_of_the_victim(self) -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:  # not BLPOP, whose reply may take longer than a time-out
            if key := self._client.lpop(self._place.key("inside")):
                return key
            time.sleep(0.005)
        sys.exit("no worker entered its section")

    def _wait_for_sections(self, total: int, workers: Sequence[Any]) -> None:
        """Show progress until that many sections are done or all workers have ended."""
        is_watched, shown = sys.stdout.isatty(), -1
        while shown < total:
            is_working = any(worker.is_alive() for worker in workers)
            done = min(self._done(), total)
            if is_watched or 4 * done // total > 4 * shown // total:  # else a line per quarter
                bar, end = "#" * (40 * done // total), "\r" if is_watched else "\n"
                print(f"  {bar:.<40} {done} of {total} sections", end=end, flush=True)
                shown = done
            if not is_working:
                break
            time.sleep(0.05)
        print(end="\n" if is_watched else "")


@contextlib.contextmanager
def running(tasks: Sequence[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Run tasks in processes of their own, which are killed at the end."""
    workers: list[Any] = [
        processes.Process(target=bound, args=arguments, daemon=True) for arguments in tasks
    ]
    try:
        with without_interrupts():  # Ctrl-C is for this process, which ends them
            for worker in workers:
                worker.start()
        yield workers
    finally:
        for worker in workers:
            if worker.pid is not None:  # else not started
                worker.kill()
                worker.join()


def join(workers: Sequence[Any]) -> None:
    """Wait until the workers have ended; end with an error if one failed."""
    for worker in workers:
        worker.join(PATIENCE)
        if worker.exitcode != 0:
            sys.exit(f"a worker ended with status {worker.exitcode}")
