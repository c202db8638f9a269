"""A timer wheel: its cost does not grow with the number of timers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class TimerWheel(Generic[T]):
    """Items by the time at which they are due, rounded so that many are due together.

    An exception such as KeyboardInterrupt may be raised between any two lines. So a time is pushed
    to the heap before items are added to it, a time may have no items, and items are removed only
    after the caller has them.

    Args:
        phase: the offset of the rounding, so that processes do not act simultaneously.
    """

    __slots__ = ("_heap", "_phase", "_rims")

    def __init__(self, phase: float = 0.0) -> None:
        self._phase = phase
        self._rims: dict[float, set[T]] = {}
        self._heap: list[float] = []

    def __len__(self) -> int:
        return sum([len(rim) for rim in self._rims.values()])

    def __iter__(self) -> Iterator[T]:
        return iter([thing for rim in self._rims.values() for thing in rim])

    def put(self, thing: T, when: float, grain: float) -> float:
        """Add an item; return its rounded time, at most a ``grain`` before ``when``."""
        due = when - (when - self._phase) % grain
        rim = self._rims.get(due)
        if rim is None:
            heapq.heappush(self._heap, due)
            rim = self._rims[due] = set()
        rim.add(thing)
        return due

    def drop(self, thing: T, due: float) -> None:
        """Remove an item, if it is still there."""
        rim = self._rims.get(due)
        if rim is not None:
            rim.discard(thing)

    def take(self, now: float, taken: list[T]) -> list[T]:
        """Move the items that are due to ``taken``; after an interruption, some are there twice."""
        while self._heap and self._heap[0] <= now:
            taken += self._rims.get(self._heap[0], ())
            self._rims.pop(self._heap[0], None)
            heapq.heappop(self._heap)
        return taken

    def next(self) -> float:
        """Return the time of the first item; infinity if the wheel is empty."""
        while self._heap and not self._rims.get(self._heap[0]):
            self._rims.pop(self._heap[0], None)
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else math.inf
