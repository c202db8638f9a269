"""Waiting for bytes in a pipe, whatever its number: ``select`` takes numbers below 1024 only."""

from __future__ import annotations

import math
import select

#: Seconds; a longer wait has no end, as ``poll`` counts milliseconds in 32 bits.
LONGEST = 1e6


def is_readable(file: int, seconds: float) -> bool:
    """Whether a file has bytes, or has ended, within so many seconds."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(math.ceil(max(0.0, seconds) * 1000) if seconds < LONGEST else None))
