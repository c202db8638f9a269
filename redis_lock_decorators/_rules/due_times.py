"""Keys by the time at which each is due."""

from __future__ import annotations

import heapq
import math

#: Former times that the heap may contain in addition to one for each key.
SPARE = 64


class DueTimes:
    """Keys by the time at which each is due; a change costs the logarithm of their number.

    The heap also contains former times, which are skipped. An exception such as KeyboardInterrupt
    may be raised between any two lines. So a time is in the heap before it is stored, and a key is
    removed only by the caller, after its work was started.
    """

    __slots__ = ("_heap", "_times")

    def __init__(self) -> None:
        self._times: dict[bytes, float] = {}
        self._heap: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: bytes, when: float) -> None:
        """Set the time of a key, in place of a former one."""
        heapq.heappush(self._heap, (when, key))
        self._times[key] = when
        if len(self._heap) > 2 * len(self._times) + SPARE:
            heap = [(time, key) for key, time in self._times.items()]
            heapq.heapify(heap)
            self._heap = heap

    def discard(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        self._times.pop(key, None)

    def next(self) -> float:
        """Return the first time; infinity if there is none."""
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def first(self, now: float) -> bytes | None:
        """Return the first key if it is due; the caller sets its next time or removes it."""
        return self._heap[0][1] if self.next() <= now else None
