"""What becomes of a cohort's lock: it is handed off once, or released."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from redis_lock_decorators._flow.membership import CohortMember, Handover


class HandOff(NamedTuple):
    """A hand-off of the lock from one claim of a cohort to one of its waiters."""

    giver: Any
    member: CohortMember
    handover: Handover

    def hand(self) -> bool:
        """Hand the lock over; False if the waiter has withdrawn. Can be repeated."""
        record = self.handover.queue_record
        if record is not None:  # a message about this grant may still be under way
            record.move(self.giver, self.member.claim, self.handover.since)
        is_accepted = self.member.hand(self.handover)
        if record is not None and not is_accepted:
            record.move(self.member.claim, self.giver, self.handover.since)
        return is_accepted


class Disposal:
    """Decides once whether a claim's identifier is handed off or its keys are released.

    Other threads, signal handlers and finalizers may release the claim at the same time. Each
    decision is one ``dict.setdefault``, so that all of them find the same one and complete it. A
    hand-off is void if its waiter has withdrawn; then another decision follows.
    """

    __slots__ = ("_decisions",)

    def __init__(self) -> None:
        #: any thread; a hand-off, or None: to release the keys
        self._decisions: dict[int, HandOff | None] = {}

    def decide(self, proposed: HandOff | None) -> HandOff | None:
        """Decide for a hand-off, or (None) a release, unless the opposite is decided.

        Returns the decision: a hand-off that is complete, the proposed one, or None.
        """
        for number in count():
            decided = self._decisions.setdefault(number, proposed)
            if decided is None or decided is proposed or decided.hand():
                break
        return decided

    def handed_off(self) -> HandOff | None:
        """The hand-off that a waiter has accepted, if any."""
        for decided in list(self._decisions.values()):
            if decided is not None and decided.member.handover is decided.handover:
                return decided
        return None
