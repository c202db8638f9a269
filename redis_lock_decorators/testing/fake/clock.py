"""A clock in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

#: The Unix time when the monotonic clock is 0, in microseconds.
EPOCH = 1_700_000_000_000_000


class Clock:
    """A clock that advances only on request, with actions scheduled on it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._hooks: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Run ``action`` once the clock shows ``when``."""
        heapq.heappush(self._hooks, (when, next(self._numbers), action))

    def advance(self, seconds: float) -> None:
        """Advance the clock; scheduled actions run and may advance it further."""
        end = self.now + seconds
        while self._hooks and self._hooks[0][0] <= end:
            when, _, action = heapq.heappop(self._hooks)
            self.now = max(self.now, when)
            action()
        self.now = max(self.now, end)
