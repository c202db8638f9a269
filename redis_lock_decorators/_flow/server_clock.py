"""The server's clock, as far as it is known here."""

from __future__ import annotations

import math
from typing import NamedTuple


class Clock(NamedTuple):
    """A reading of the server's clock.

    Attributes:
        sent: when the request was sent, in monotonic seconds.
        time: the reading in Unix milliseconds; None before the first one.
        took: that request acquired the lock.
    """

    sent: float = -math.inf
    time: int | None = None
    took: bool = False

    def latest(self, now: float, seconds: float) -> int:
        """The latest end of a lease of ``seconds`` that was granted by ``now``; 0 if unknown."""
        if self.time is None:
            return 0
        return self.time + round(1000 * (seconds if self.took else seconds + now - self.sent))
