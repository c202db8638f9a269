"""The end of a lease that several requests move at the same time.

Each request adds what is known of the end, and the end follows from all of it, in whatever order
the replies arrive. Threads share this without a lock: each step is one operation of a dict.
"""

from __future__ import annotations

from typing import NamedTuple


class Given(NamedTuple):
    """An end that a request gave.

    Attributes:
        sent: when the request was sent, in monotonic seconds.
        duration: how many seconds it gave.
    """

    sent: float
    duration: float


class Shortening:
    """A request that moves the end nearer.

    The server may have run it after any request that was sent before its reply arrived. So what
    such a request gave ends no later than this.

    Attributes:
        end: the requested end, in monotonic seconds.
        duration: how many seconds the lease lasts by it.
        sent: when the request was sent.
        run_by: when the server has run it at the latest; until its reply arrives, the time after
            which no copy of it can be run.
        is_known: its reply has arrived.
    """

    __slots__ = ("duration", "end", "is_known", "run_by", "sent")

    def __init__(self, end: float, duration: float, sent: float, run_by: float) -> None:
        self.end = end
        self.duration = duration
        self.sent = sent
        #: written by the flow of its request, read by any thread
        self.run_by = run_by
        self.is_known = False


class LeaseEnds:
    """All that is known of the end of one lease.

    Attributes:
        given: what requests gave, by its end.
        shortenings: requests that moved the end nearer, or may have.
    """

    __slots__ = ("given", "shortenings")

    def __init__(self) -> None:
        #: any thread
        self.given: dict[float, Given] = {}
        self.shortenings: dict[Shortening, None] = {}

    def believed(self) -> tuple[float, float]:
        """The end that follows from all requests, and how many seconds the lease lasts by it."""
        shortenings = list(self.shortenings)
        return max([_limited(end, one, shortenings) for end, one in self.given.copy().items()])

    def remove_outdated(self) -> None:
        """Remove what can no longer change the end, whatever replies arrive."""
        if len(self.given) > 1:
            self._remove_surpassed()
        if len(self.shortenings) > 1:
            self._merge_old()

    def _remove_surpassed(self) -> None:
        """Remove each end that another surpasses, whatever shortenings are under way."""
        known = [one for one in list(self.shortenings) if one.is_known]
        ends = [
            (_limited(end, one, known)[0], one.sent, end) for end, one in self.given.copy().items()
        ]
        best = max(ends)
        for value, sent, end in ends:
            if value < best[0] and sent <= best[1]:
                self.given.pop(end, None)

    def _merge_old(self) -> None:
        """Merge the shortenings that were run before any of the given ends was requested."""
        oldest = min([one.sent for one in self.given.copy().values()])
        old = [one for one in list(self.shortenings) if one.run_by < oldest]
        if len(old) < 2:
            return
        nearest, run_by = min(old, key=lambda one: one.end), max(one.run_by for one in old)
        merged = Shortening(nearest.end, nearest.duration, nearest.sent, run_by)
        merged.is_known = True
        self.shortenings[merged] = None  # first, as another thread may read in between
        for one in old:
            self.shortenings.pop(one, None)


def _limited(end: float, given: Given, shortenings: list[Shortening]) -> tuple[float, float]:
    """What is left of an end that was given, and of its duration, after all shortenings."""
    duration = given.duration
    for shortening in shortenings:
        if shortening.end < end and given.sent <= shortening.run_by:
            end, duration = shortening.end, shortening.duration
    return end, duration
