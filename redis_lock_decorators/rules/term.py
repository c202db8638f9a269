"""Lease arithmetic: until when a holder may believe that it is inside. Seconds, monotonic."""

from __future__ import annotations


def drift_margin(expire: float) -> float:
    """What a lease is shortened by, because two clocks never run alike.

    1 % of the lease and 2 ms, the margin of the Redlock description; never more than half of it.
    """
    return min(0.01 * expire + 0.002, expire / 2)


def deadline(sent: float, expire: float) -> float:
    """The end of a lease whose request left at ``sent``: never counted from a reply's arrival."""
    return sent + expire - drift_margin(expire)
