"""Compare the clocks of servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._diagnosis.nodes import Asker

#: Seconds. A failover takes longer, and fences grow over a failover if the difference is smaller.
MOST_DIFFERENCE = 1.0


@dataclass(frozen=True)
class ClockSample:
    """How far a server's clock is ahead of this machine's, in seconds.

    Attributes:
        server: its address.
        least: the lower bound, as the server read its clock before the reply arrived.
        most: the upper bound, as it did so after the request was sent.
    """

    server: str
    least: float
    most: float


def sampled(server: str, asker: Asker) -> ClockSample | None:
    """Ask a server for its time; None if it refuses."""
    before = time.time()
    reply = asker.ask("TIME")
    after = time.time()
    if not isinstance(reply, list):
        return None
    now = int(reply[0]) + int(reply[1]) / 1e6
    return ClockSample(server, now - after, now - before)


def findings(samples: Sequence[ClockSample]) -> Iterator[Finding]:
    """Yield a finding if the clocks certainly differ too much."""
    if not samples:
        return
    ahead = max(samples, key=lambda sample: sample.least)
    behind = min(samples, key=lambda sample: sample.most)
    difference = ahead.least - behind.most
    if difference > MOST_DIFFERENCE:
        yield Finding(
            Severity.RISK,
            f"The clocks of the servers differ by {difference:.1f} s or more",
            "After a failover from the server whose clock is ahead, fences may fall, and keys may "
            "expire earlier or later than their holders believe.",
            "Synchronise the clocks (NTP).",
            (ahead.server, behind.server),
        )
