"""What becomes of a cohort's lock: it is handed off once, or released."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal, NamedTuple

from redis_lock_decorators._flow.membership import CohortMember, HandedLock

#: In place of a hand-off whose waiter had withdrawn. The hand-off would keep the giver alive.
VOID: Literal["void"] = "void"


class HandOff(NamedTuple):
    """A hand-off of the lock to a waiter of a cohort; the giver's decision refers to it."""

    member: CohortMember
    handed_lock: HandedLock

    def hand(self, giver: Any) -> bool:
        """Hand the lock of a claim over; False if the waiter has withdrawn. Can be repeated."""
        record = self.handed_lock.queue_record
        if record is not None:  # a message about this grant may still be under way
            record.move(giver, self.member.claim, self.handed_lock.since)
        is_accepted = self.member.hand(self.handed_lock)
        if record is not None and not is_accepted:
            record.move(self.member.claim, giver, self.handed_lock.since)
        return is_accepted


class HandOffDecision:
    """Decides once whether a claim's identifier is handed off or its keys are released.

    Other threads, signal handlers and finalizers may release the claim at the same time. Each
    decision is one ``dict.setdefault``, so that all of them find the same one and complete it. A
    hand-off is void if its waiter has withdrawn; then another decision follows.

    It refers to no claim but those of later holders, so that no claim is in a reference cycle.
    """

    __slots__ = ("_decisions",)

    def __init__(self) -> None:
        #: any thread; a hand-off, ``VOID``, or None: to release the keys
        self._decisions: dict[int, HandOff | Literal["void"] | None] = {}

    def decide(self, giver: Any, proposed: HandOff | None) -> HandOff | None:
        """Decide for a hand-off of ``giver``, or (None) a release, unless the opposite is decided.

        Returns the decision: a hand-off that is complete, the proposed one, or None.
        """
        for number in count():
            decided = self._decisions.setdefault(number, proposed)
            if decided == VOID:
                continue
            if decided is None or decided is proposed or decided.hand(giver):
                return decided
            self._decisions[number] = VOID  # for good: the waiter accepts no other hand-off either
        raise AssertionError

    def handed_off(self) -> HandOff | None:
        """The hand-off that a waiter has accepted, if any."""
        for decided in list(self._decisions.values()):
            if isinstance(decided, HandOff) and decided.member.handed_lock is decided.handed_lock:
                return decided
        return None
