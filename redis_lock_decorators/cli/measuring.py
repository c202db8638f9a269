"""Measure locks on a server: in short rounds that alternate, so that noise affects all alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

#: The shortest round, in seconds: long against the clock's resolution.
ROUND_SECONDS = 0.03
LEAST_ROUNDS = 3
#: The threads that contend for a lock, and how long each time.
THREADS = 4
WINDOW_SECONDS = 0.5
WINDOWS = 2

#: Makes a lock that was not used before.
Lock = Callable[[], AbstractContextManager[Any]]
#: Is called with the seconds that passed.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Contention:
    """What threads achieved that contend for a lock.

    Attributes:
        per_second: blocks per second of all threads.
        longest_wait: the longest time in seconds that a thread waited for the lock.
    """

    per_second: float
    longest_wait: float


def median_seconds(
    ways: Mapping[str, Callable[[], object]], seconds: float, progress: Progress
) -> dict[str, float]:
    """Return the median seconds of a call of each, measured for about so long in all."""
    cycles = {name: _calls_of_a_round(way) for name, way in ways.items()}
    samples: dict[str, list[float]] = {name: [] for name in ways}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < LEAST_ROUNDS or time.perf_counter() < end:
        for name in random.sample(list(ways), len(ways)):
            spent = _seconds_of(ways[name], cycles[name])
            samples[name].append(spent / cycles[name])
            progress(spent)
        rounds += 1
    return {name: statistics.median(times) for name, times in samples.items()}


def _calls_of_a_round(way: Callable[[], object]) -> int:
    way()  # the first call may connect
    return max(1, round(ROUND_SECONDS / _seconds_of(way, 1)))


def _seconds_of(way: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        way()
    return time.perf_counter() - began


def contentions(locks: Mapping[str, Lock], progress: Progress) -> dict[str, Contention]:
    """Return what threads achieve with each lock, in windows that alternate."""
    found: dict[str, list[Contention]] = {name: [] for name in locks}
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(WINDOWS):
            for name in random.sample(list(locks), len(locks)):
                found[name].append(_contended(threads, locks[name]))
                progress(WINDOW_SECONDS)
    return {name: _joined(windows) for name, windows in found.items()}


def _contended(threads: ThreadPoolExecutor, lock: Lock) -> Contention:
    began = time.perf_counter()
    end = began + WINDOW_SECONDS
    waits = [
        wait
        for work in [threads.submit(_waits_until, end, lock) for _ in range(THREADS)]
        for wait in work.result()
    ]
    return Contention(len(waits) / (time.perf_counter() - began), max(waits))


def _waits_until(end: float, lock: Lock) -> list[float]:
    """Enter and leave blocks; return how long each waited."""
    waits = []
    while True:
        began = time.perf_counter()
        with lock():
            waits.append(time.perf_counter() - began)
        if time.perf_counter() > end:
            return waits


def _joined(windows: Sequence[Contention]) -> Contention:
    return Contention(
        statistics.median(one.per_second for one in windows),
        max(one.longest_wait for one in windows),
    )
