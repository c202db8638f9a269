"""How long a request waits: for a silent server, and for its turn while one answers others."""

from __future__ import annotations

import math


class Until(float):
    """The latest time for a reply of a silent server, in monotonic seconds.

    Attributes:
        end: the latest time for a reply, as long as the server answers those before it.
        is_repeated: the request was sent before, and no reply came.
    """

    __slots__ = ("end", "is_repeated")

    end: float
    is_repeated: bool

    def __new__(cls, until: float, end: float, is_repeated: bool = False) -> Until:
        self = float.__new__(cls, until)
        self.end, self.is_repeated = end, is_repeated
        return self


def end_of(until: float) -> float:
    """The latest time for a reply; that of a silent server, where nobody said more."""
    return until.end if isinstance(until, Until) else until


def repeated(until: float) -> Until:
    """The latest time for a reply to a request that is sent once more."""
    return Until(until, end_of(until), True)


def is_repeated(until: float) -> bool:
    """Whether what is to be answered by then was sent before."""
    return isinstance(until, Until) and until.is_repeated


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
    return Until(min(latest, end), end, is_repeated(until)) if end > until else until
