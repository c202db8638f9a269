"""A wheel of times at which something falls due; its cost does not grow with their number."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

T = TypeVar("T")


class TimerWheel(Generic[T]):
    """Things by the time at which they are due; what is due at about the same time is due together.

    An exception from outside (a Ctrl-C) may come between any two lines: a time is in the heap
    before anything is due at it, and may be there without anything. What is taken is there until
    its taker has it.

    Args:
        phase: from where times are rounded, so that not all processes of a machine act at once.
    """

    __slots__ = ("_heap", "_phase", "_rims")

    def __init__(self, phase: float = 0.0) -> None:
        self._phase = phase
        self._rims: dict[float, set[T]] = {}
        self._heap: list[float] = []

    def __len__(self) -> int:
        return sum([len(rim) for rim in self._rims.values()])

    def put(self, thing: T, when: float, grain: float) -> float:
        """Add a thing; returns the time by which it is kept, up to a ``grain`` before ``when``."""
        due = when - (when - self._phase) % grain
        rim = self._rims.get(due)
        if rim is None:
            heapq.heappush(self._heap, due)
            rim = self._rims[due] = set()
        rim.add(thing)
        return due

    def drop(self, thing: T, due: float) -> None:
        """Take a thing away, if it is still there."""
        rim = self._rims.get(due)
        if rim is not None:
            rim.discard(thing)

    def take(self, now: float, taken: list[T]) -> list[T]:
        """Take away what is due, and add it to what was taken; twice, if this is interrupted."""
        while self._heap and self._heap[0] <= now:
            taken += self._rims.get(self._heap[0], ())
            self._rims.pop(self._heap[0], None)
            heapq.heappop(self._heap)
        return taken

    def next(self) -> float:
        """When something is due next; infinity if the wheel is empty."""
        while self._heap and not self._rims.get(self._heap[0]):
            self._rims.pop(self._heap[0], None)
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else math.inf
