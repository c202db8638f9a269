"""Until when a lease may be believed, while several requests move its end at once.

What each request gave is a fact, and the end that is believed follows from all of them in whatever
order they become known. Threads share the facts without a lock: each is put in or taken out in one
step.
"""

from __future__ import annotations

from typing import NamedTuple


class Given(NamedTuple):
    """An end that a request gave.

    Attributes:
        sent: when the request left, in monotonic seconds.
        lasts: how many seconds it gave.
    """

    sent: float
    lasts: float


class Shortening:
    """A request that moves the end nearer.

    Requests that left before its answer was known may have been run before it. So what they gave
    lasts no longer than this.

    Attributes:
        end: the wanted end, in monotonic seconds.
        lasts: how many seconds the lease lasts by it.
        sent: when the request left.
        run: by when it was run if it ever is; at first, when no copy of it can be run any more.
        is_known: its answer is known.
    """

    __slots__ = ("end", "is_known", "lasts", "run", "sent")

    def __init__(self, end: float, lasts: float, sent: float, run: float) -> None:
        self.end = end
        self.lasts = lasts
        self.sent = sent
        self.run = run
        self.is_known = False


class LeaseEnds:
    """The facts about the end of one lease.

    Attributes:
        given: what was given, by its end.
        shortenings: requests that moved the end nearer, or may have.
    """

    __slots__ = ("given", "shortenings")

    def __init__(self) -> None:
        self.given: dict[float, Given] = {}
        self.shortenings: dict[Shortening, None] = {}

    def believed(self) -> tuple[float, float]:
        """The end that holds by all that was given, and how many seconds the lease lasts by it."""
        shortenings = list(self.shortenings)
        return max([_limited(end, one, shortenings) for end, one in self.given.copy().items()])

    def tidy(self) -> None:
        """Forget what makes no difference to any fact that may come."""
        if len(self.given) > 1:
            self._forget_surpassed()
        if len(self.shortenings) > 1:
            self._merge_old()

    def _forget_surpassed(self) -> None:
        """Forget each end that another surpasses, whatever becomes of shortenings under way."""
        known = [one for one in list(self.shortenings) if one.is_known]
        ends = [
            (_limited(end, one, known)[0], one.sent, end) for end, one in self.given.copy().items()
        ]
        best = max(ends)
        for value, sent, end in ends:
            if value < best[0] and sent <= best[1]:
                self.given.pop(end, None)

    def _merge_old(self) -> None:
        """Keep one shortening in place of those before all that was given."""
        oldest = min([one.sent for one in self.given.copy().values()])
        old = [one for one in list(self.shortenings) if one.run < oldest]
        if len(old) < 2:
            return
        nearest = min(old, key=lambda one: one.end)
        merged = Shortening(nearest.end, nearest.lasts, nearest.sent, max(one.run for one in old))
        merged.is_known = True
        self.shortenings[merged] = None  # before they go: others may read in between
        for one in old:
            self.shortenings.pop(one, None)


def _limited(end: float, one: Given, shortenings: list[Shortening]) -> tuple[float, float]:
    lasts = one.lasts
    for shortening in shortenings:
        if shortening.end < end and one.sent <= shortening.run:
            end, lasts = shortening.end, shortening.lasts
    return end, lasts
