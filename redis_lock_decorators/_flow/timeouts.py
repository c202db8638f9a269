"""Time limits of a request: for a silent server, and in total while the server answers others."""

from __future__ import annotations

import math

from redis_lock_decorators._rules.marks import marked

#: The least time, in seconds, that a request gets for its reply, however short the caller's wait.
ROUND_TRIP = 1.0


class TimeLimits(float):
    """The latest time for the reply of a silent server, in monotonic seconds.

    Attributes:
        end: the latest time for a reply while the server answers requests that were sent before.
        is_repeated: the request was sent before without a reply.
    """

    __slots__ = ("end", "is_repeated")

    end: float
    is_repeated: bool

    def __new__(cls, until: float, end: float, is_repeated: bool = False) -> TimeLimits:
        self = float.__new__(cls, until)
        self.end, self.is_repeated = end, is_repeated
        return self


def end_of(until: float) -> float:
    """The latest time for a reply while the server answers others; ``until`` if not given."""
    return until.end if isinstance(until, TimeLimits) else until


def repeated(until: float) -> TimeLimits:
    """The same time limits, for a request that is sent once more."""
    return TimeLimits(until, end_of(until), True)


def delayed_limits(until: float, seconds: float) -> TimeLimits:
    """The time limits of a request that is sent so many seconds later; their end remains."""
    return TimeLimits(until + seconds, end_of(until), is_repeated(until))


def is_repeated(until: float) -> bool:
    """Whether the request with this time limit was sent before."""
    return isinstance(until, TimeLimits) and until.is_repeated


def second_limits(until: float, latest: float) -> float:
    """The time limits of a second request after the reply to a first one; at least ``latest``."""
    if until >= latest:
        return until
    return TimeLimits(latest, max(latest, end_of(until)), is_repeated(until))


def with_send_time(error: Exception, moment: float) -> Exception:
    """The error, with the time at which its request was sent."""
    return marked(error, "sent_at", moment)


def limit_after_failure(until: float, end: float, error: Exception, seconds: float) -> float:
    """``until``, or ``seconds`` after the failed request was sent if it was queued before."""
    return max(until, min(end, getattr(error, "sent_at", -math.inf) + seconds))


def limit_after_queueing(until: float, latest: float) -> float:
    """The time limit of a request that was queued until now: ``latest``, but not past its end."""
    end = end_of(until)
    return TimeLimits(min(latest, end), end, is_repeated(until)) if end > until else until
