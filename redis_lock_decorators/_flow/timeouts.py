"""How long a request waits: for a silent server, and for its turn while one answers others."""

from __future__ import annotations

import math


class Until(float):
    """The latest time for a reply of a silent server, in monotonic seconds.

    Attributes:
        end: the latest time for a reply, as long as the server answers those before it.
    """

    __slots__ = ("end",)

    end: float

    def __new__(cls, until: float, end: float) -> Until:
        self = float.__new__(cls, until)
        self.end = end
        return self


def end_of(until: float) -> float:
    """The latest time for a reply; that of a silent server, where nobody said more."""
    return until.end if isinstance(until, Until) else until


def left(error: Exception, moment: float) -> Exception:
    """The error, marked with when the request behind it left."""
    error.left = moment  # type: ignore[attr-defined]
    return error


def extended(until: float, end: float, error: Exception, seconds: float) -> float:
    """So many seconds since the request behind an error left, if it had to wait for its turn."""
    return max(until, min(end, getattr(error, "left", -math.inf) + seconds))


def prolonged(until: float, latest: float) -> float:
    """A time for a request that leaves late, as its caller was held up, but has time itself."""
    end = end_of(until)
    return Until(min(latest, end), end) if end > until else until
