"""The checks of durations that users give, in seconds."""

from __future__ import annotations

import math
from datetime import timedelta

from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

#: The longest lease: one leap year. A longer one is probably given in the wrong unit.
LONGEST_EXPIRE = 366 * 86_400.0
#: Redis counts in milliseconds; a shorter lease is rounded up.
SHORTEST_EXPIRE = 0.001
#: The shortest lease: its deadline is 2 ms and 1 % earlier, and a round trip takes time, too.
SHORTEST_LEASE = 0.01


def checked_expire(expire: object, option: str = "expire") -> float:
    """Return the time to live of a lease: more than 0 s, at most ``LONGEST_EXPIRE``."""
    seconds = checked_number(option, expire)
    if not 0 < seconds <= LONGEST_EXPIRE:
        hint = " (is this milliseconds, by mistake?)" if seconds > LONGEST_EXPIRE else ""
        raise ConfigurationError(
            f"{option}={shown_value(expire)}: a lease lives more than 0 s and at most "
            f"{LONGEST_EXPIRE:.0f} s; give seconds{hint}"
        )
    return max(seconds, SHORTEST_EXPIRE)


def checked_lease(expire: object) -> float:
    """Return the time to live of a lease with a deadline: at least ``SHORTEST_LEASE``."""
    seconds = checked_expire(expire)
    if seconds < SHORTEST_LEASE:
        raise ConfigurationError(
            f"expire={shown_value(expire)}: such a lease would end before the server's reply is "
            f"read; give at least {SHORTEST_LEASE} s"
        )
    return seconds


def checked_acquire_time(acquire_time: object) -> float:
    """Return the longest wait: 0 means one try, None becomes infinity."""
    if acquire_time is None:
        return math.inf
    seconds = checked_number("acquire_time", acquire_time)
    if not seconds >= 0:
        raise ConfigurationError(
            f"acquire_time={shown_value(acquire_time)}: give seconds, 0 for one try, None to wait "
            "indefinitely"
        )
    return seconds


def checked_delta(delta: object) -> float:
    """Return the pause between two tries: more than 0 s, at most an hour."""
    seconds = checked_number("delta", delta)
    if not 0 < seconds <= 3600:
        raise ConfigurationError(
            f"delta={shown_value(delta)}: give the seconds between two tries, more than 0 and at "
            "most 3600"
        )
    return seconds


def checked_hold(option: str, hold: object) -> float | None:
    """Return ``max_hold`` or ``min_hold``: more than 0 s, at most a year; None for no limit."""
    if hold is None:
        return None
    seconds = checked_number(option, hold)
    if not 0 < seconds <= LONGEST_EXPIRE:
        raise ConfigurationError(
            f"{option}={shown_value(hold)}: give more than 0 s and at most "
            f"{LONGEST_EXPIRE:.0f} s, or None"
        )
    return max(seconds, SHORTEST_EXPIRE)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds for PX, rounded up: 0.0005 s gives 1, never 0."""
    # Without round(), a float such as 0.003 would give 4 ms, as 0.003 * 1000 > 3.
    return max(1, math.ceil(round(seconds * 1000, 6)))


def _typed(option: str, value: object) -> str:
    """What is given for an option, and its type; once, if only the type is shown."""
    value_text, of_type = shown_value(value), f"of type {type(value).__name__}"
    if value_text.endswith(of_type):
        return f"{option} is {value_text}"
    return f"{option}={value_text} is {of_type}"


def checked_number(option: str, value: object) -> float:
    """Return a number of seconds that a float can hold; it may be negative, infinite or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        tries_once = value is False and option == "acquire_time"
        cure = ", 0 for one try, or acquire(blocking=False)" if tries_once else ""
        if isinstance(value, timedelta):
            cure = ", as .total_seconds() returns it"
        raise ConfigurationError(f"{_typed(option, value)}: give a number of seconds{cure}")
    try:
        float(value)
    except OverflowError:
        raise ConfigurationError(f"{option} is too large for a number of seconds") from None
    return value
