"""Messages that repeat: one per key and period, with the number of those that were left out."""

from __future__ import annotations

#: So many keys are remembered; then all are forgotten.
MOST_KEYS = 1000


class RateLimit:
    """Allows one message per key in each period.

    Args:
        period: in seconds.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        #: any thread: by key, when a message was last allowed, and how many were not since
        self._allowed: dict[object, tuple[float, int]] = {}

    def left_out(self, key: object, now: float) -> int | None:
        """Return how many messages were left out before this one; None to leave this one out."""
        last, count = self._allowed.get(key, (None, 0))
        if last is not None and now < last + self._period:
            self._allowed[key] = last, count + 1
            return None
        if len(self._allowed) >= MOST_KEYS:
            self._allowed.clear()
        self._allowed[key] = now, 0
        return count
