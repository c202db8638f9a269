"""Lease arithmetic: until when a holder may believe that it is inside. Seconds, monotonic."""

from __future__ import annotations

import math

#: A lease is renewed when this share of it is over, counted from when its last request was sent.
SHARE = 1 / 3
#: Every lease is looked at once in so many seconds, however long it is: whether somebody has it.
LONGEST_LOOK = 60.0
#: How much earlier than that, so that many are looked at together.
LOOK_GRAIN = 8.0

#: A server is far away if its replies take more than this share of a lease.
FAR = 1 / 50


def drift_margin(expire: float) -> float:
    """What a lease is shortened by, because two clocks never run alike.

    1 % of the lease and 2 ms, the margin of the Redlock description; never more than half of it.
    """
    margin, half = 0.01 * expire + 0.002, expire / 2
    return margin if margin < half else half


def deadline(sent: float, expire: float) -> float:
    """The end of a lease whose request left at ``sent``: never counted from a reply's arrival."""
    return sent + expire - drift_margin(expire)


def grain(expire: float) -> float:
    """How much earlier than it must a lease may be renewed, to be renewed together with others.

    A power of two, so that leases of different length meet; 1/48 to 1/24 of the lease.
    """
    return float(2.0 ** math.floor(math.log2(expire / 24)))


def first_look(expire: float) -> float:
    """How long after a lease was taken somebody must look at it, to renew it in time."""
    return min(expire * SHARE - grain(expire), LONGEST_LOOK - LOOK_GRAIN)


def look(now: float, when: float, grain: float) -> tuple[float, float]:
    """When to look at a lease that is due at ``when`` or up to a ``grain`` earlier."""
    if when > now + LONGEST_LOOK:
        return now + LONGEST_LOOK, LOOK_GRAIN
    return when, grain


def renewal_due(end: float, expire: float) -> float:
    """When to renew a lease that ends at ``end``: a third after the request that gave it left."""
    return end + drift_margin(expire) - expire * (1 - SHARE)


def is_far(now: float, end: float, expire: float) -> bool:
    """Whether the request that gave a lease, known ``now``, took a large share of it."""
    return now - (end + drift_margin(expire) - expire) > FAR * expire


def is_last(end: float, expire: float, last: float) -> bool:
    """Whether a renewal would not move the ``end`` of a lease that may not outlast ``last``."""
    return end + drift_margin(expire) + 0.001 >= last
