"""The term of a lease: from when, and until when, its holder may rely on it."""

from __future__ import annotations

import math
from typing import NamedTuple

from redis_lock_decorators._flow.lease_ends import Given, LeaseEnds, Shortening
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators.errors import UNANSWERED, UNRENEWED, in_seconds

#: The key in ``Term.known_ends``.
ENDS = "ends"


class Unrenewed(NamedTuple):
    """Renewals of a lease that failed since the last one that succeeded.

    Attributes:
        since: when the first of them was sent, in monotonic seconds.
        error: the error of the last one; "" while there is no reply.
        is_refused: the server refused it, and will refuse it until its configuration changes.
    """

    since: float
    error: str = ""
    is_refused: bool = False

    def why(self, end: float) -> str:
        """The reason for the loss of a lease that ended at ``end``."""
        if self.is_refused:
            return f"{UNRENEWED} ({self.error})"
        last = f" (last error: {self.error})" if self.error else ""
        return f"{UNANSWERED} for {in_seconds(max(end - self.since, 0.0))}{last}"


class Term:
    """The term of a lease; times are monotonic seconds. ``Claim`` is one, and initializes it.

    Attributes:
        since: no later than the lock was acquired: when the request for it was sent.
        entered: when its holder knew that it held the lock; minus infinity before.
        deadline: when the lease ends for its holder; minus infinity if it was never held,
            infinity if it has no end or an unknown one.
        duration: how many seconds the last successful request gave it.
        unrenewed: the renewals that failed since one succeeded; None if there are none.
        known_ends: what ``ends`` returns; empty before its first use, as in most leases.
    """

    __slots__ = ("deadline", "duration", "entered", "known_ends", "since", "unrenewed")

    since: float
    entered: float
    deadline: float
    duration: float
    unrenewed: Unrenewed | None
    known_ends: dict[str, LeaseEnds]

    @property
    def ends(self) -> LeaseEnds:
        """All that is known of its end, once it was prolonged or moved."""
        known = self.known_ends.get(ENDS)
        # One operation of a dict: threads that come at the same time get the same object.
        return known if known is not None else self.known_ends.setdefault(ENDS, LeaseEnds())

    def prolong(self, sent: float, seconds: float) -> None:
        """Last for ``seconds`` from ``sent``, when the request was sent, if that is longer."""
        self.unrenewed = None
        if lease_times.deadline(sent, seconds) > self.deadline:
            self.add_end(sent, seconds)

    def add_end(self, sent: float, seconds: float) -> None:
        """Last for ``seconds`` from ``sent``, unless a later request may have shortened that."""
        self.unrenewed = None
        self.ends.given[lease_times.deadline(sent, seconds)] = Given(sent, seconds)
        self._apply_ends()

    def shorten(self, nearer: Shortening) -> None:
        """Last until ``nearer`` at most, as a request to shorten it is being sent."""
        self.ends.shortenings[nearer] = None
        end = self.deadline
        if not self.ends.given and -math.inf < end < math.inf:
            self.ends.given[end] = Given(-math.inf, self.duration)
        self._apply_ends()

    def confirm_shortened(self, nearer: Shortening, now: float) -> None:
        """Record that the server shortened the lease."""
        self.unrenewed = None
        self.ends.given[nearer.end] = Given(nearer.sent, nearer.duration)
        self.maybe_shortened(nearer, now)

    def maybe_shortened(self, nearer: Shortening, now: float) -> None:
        """Record that the server may have shortened the lease, but no longer will."""
        nearer.run_by, nearer.is_known = min(now, nearer.run_by), True
        self._apply_ends()

    def cancel_shortening(self, nearer: Shortening) -> None:
        """Record that the server did not shorten the lease, and will not."""
        self.ends.shortenings.pop(nearer, None)
        self._apply_ends()

    def _apply_ends(self) -> None:
        """Set the term that follows from all that is known of the end.

        Other threads may learn more at the same time. Each records what it learned before it calls
        this, so the last one to write the term has read all of it.
        """
        ends = self.ends
        while ends.given:  # nothing is known of the end of an external token
            end, duration = ends.believed()
            if self.deadline == end and self.duration == duration:
                ends.remove_outdated()
                break
            self.duration, self.deadline = duration, end
