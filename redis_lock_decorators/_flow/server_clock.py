"""What is known here of the server's clock."""

from __future__ import annotations

import math
from typing import NamedTuple


class Clock(NamedTuple):
    """The server's clock, as an answer told it.

    Attributes:
        sent: when the request for it left, in monotonic seconds.
        time: what it showed, in Unix milliseconds; None if that was not told yet.
        took: the lock was taken by that request.
    """

    sent: float = -math.inf
    time: int | None = None
    took: bool = False

    def latest(self, now: float, seconds: float) -> int:
        """When a lease ends at the latest, that was given by ``now``; 0 if that is not known."""
        if self.time is None:
            return 0
        return self.time + round(1000 * (seconds if self.took else seconds + now - self.sent))
