"""When a lease ends for its holder, and when to renew it. Seconds of the monotonic clock."""

from __future__ import annotations

import math

#: A lease is renewed after this share of its time to live, counted from its last request.
SHARE = 1 / 3
#: The longest time between two checks whether a lease still has an owner.
LONGEST_CHECK = 60.0
#: How much earlier a check may happen, so that many leases are checked together.
CHECK_GRAIN = 8.0

#: A round trip that takes more than this share of a lease is long: renewals start earlier.
FAR = 1 / 50


def drift_margin(expire: float) -> float:
    """Return the margin between a holder's deadline and the expiry in Redis, for clock drift.

    1 % of the lease and 2 ms, as in the Redlock specification; at most half of the lease.
    """
    margin, half = 0.01 * expire + 0.002, expire / 2
    return margin if margin < half else half


def deadline(sent: float, expire: float) -> float:
    """Return the deadline of a lease whose request was sent at ``sent``."""
    margin, half = 0.01 * expire + 0.002, expire / 2  # ``drift_margin``, in the same call
    return sent + expire - (margin if margin < half else half)


def sent(end: float, expire: float) -> float:
    """Return when the request was sent that set the deadline ``end``; inverts ``deadline``."""
    return end + drift_margin(expire) - expire


def grain(expire: float) -> float:
    """Return how much earlier a lease may be renewed, so that renewals form batches.

    A power of two, so that leases of different length fall due together; 1/48 to 1/24 of the lease.
    """
    return float(2.0 ** math.floor(math.log2(expire / 24)))


def first_check(expire: float) -> float:
    """Return how long after its acquisition a lease must be checked, to be renewed in time."""
    return min(expire * SHARE - grain(expire), LONGEST_CHECK - CHECK_GRAIN)


def next_check(now: float, when: float, grain: float) -> tuple[float, float]:
    """Return the next check of a lease that is due at ``when``, and how much earlier it may be."""
    if when > now + LONGEST_CHECK:
        return now + LONGEST_CHECK, CHECK_GRAIN
    return when, grain


def renewal_due(end: float, expire: float) -> float:
    """Return when to renew a lease with the deadline ``end``: ``SHARE`` after its last request."""
    return sent(end, expire) + expire * SHARE


def is_far(now: float, end: float, expire: float) -> bool:
    """Whether the request that set the deadline ``end``, answered ``now``, took a long time."""
    return now - sent(end, expire) > FAR * expire


def is_last(end: float, expire: float, last: float) -> bool:
    """Whether a renewal would not move the deadline ``end``: the lease must end by ``last``."""
    return end + drift_margin(expire) + 0.001 >= last
