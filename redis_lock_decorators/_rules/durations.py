"""The durations users give, checked at the door. All in seconds."""

from __future__ import annotations

import math

from redis_lock_decorators.errors import ConfigurationError

#: The longest lease: one leap year. A lock that nobody can wait for is a mistake of units.
LONGEST_EXPIRE = 366 * 86_400.0
#: Redis counts in milliseconds; a shorter lease is rounded up.
SHORTEST_EXPIRE = 0.001
#: The holder's deadline comes 2 ms and 1 % before the end, and a reply takes its time.
SHORTEST_LEASE = 0.01


def checked_expire(expire: object, option: str = "expire") -> float:
    """How long a lease lives: a number of seconds, more than 0 and at most a year."""
    seconds = _number(option, expire)
    if not 0 < seconds <= LONGEST_EXPIRE:
        raise ConfigurationError(
            f"{option}={expire!r}: a lease lives more than 0 s and at most {LONGEST_EXPIRE:.0f} s "
            "(is this in milliseconds, by mistake?)"
        )
    return max(seconds, SHORTEST_EXPIRE)


def checked_lease(expire: object) -> float:
    """How long a lease lives that its holder relies on: not too short for that."""
    seconds = checked_expire(expire)
    if seconds < SHORTEST_LEASE:
        raise ConfigurationError(
            f"expire={expire!r}: such a lease is over before the reply to its request is read; "
            f"give at least {SHORTEST_LEASE} s"
        )
    return seconds


def checked_acquire_time(acquire_time: object) -> float:
    """The longest wait: 0 means one try; None means for ever and becomes infinity."""
    if acquire_time is None:
        return math.inf
    seconds = _number("acquire_time", acquire_time)
    if not seconds >= 0:
        raise ConfigurationError(
            f"acquire_time={acquire_time!r}: give seconds, 0 for one try, None to wait for ever"
        )
    return seconds


def checked_delta(delta: object) -> float:
    """The pause between two tries: more than 0, at most an hour."""
    seconds = _number("delta", delta)
    if not 0 < seconds <= 3600:
        raise ConfigurationError(f"delta={delta!r}: give seconds between two tries, more than 0")
    return seconds


def checked_hold(option: str, hold: object) -> float | None:
    """The most or the least that a lock is held: more than 0, at most a year; None for no limit."""
    if hold is None:
        return None
    seconds = _number(option, hold)
    if not 0 < seconds <= LONGEST_EXPIRE:
        raise ConfigurationError(
            f"{option}={hold!r}: give more than 0 s and at most {LONGEST_EXPIRE:.0f} s, or None"
        )
    return max(seconds, SHORTEST_EXPIRE)


def milliseconds(seconds: float) -> int:
    """Whole milliseconds for PX, rounded up: 0.0005 s gives 1, never 0."""
    # A float such as 0.003 is a hair above 3 ms; that hair must not cost a millisecond.
    return max(1, math.ceil(round(seconds * 1000, 6)))


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        cure = "; for one try without waiting use blocking=False" if value is False else ""
        raise ConfigurationError(
            f"{option}={value!r} is of type {type(value).__name__}: give a number of seconds{cure}"
        )
    try:
        float(value)
    except OverflowError:
        raise ConfigurationError(f"{option} is too large for a number of seconds") from None
    return value
