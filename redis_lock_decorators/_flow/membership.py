"""How a claim refers to its queue and its cohort, which are built on claims.

The claims in these signatures are ``Claim``, which imports this module.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class QueueRecord(Protocol):
    """What the subscriber records of the claim that holds a lock by a queue entry."""

    def move(self, before: Any, after: Any, now: float) -> None:
        """Record that the claim ``after`` holds the lock, if ``before`` did; from any thread."""


class HandedLock(NamedTuple):
    """A held lock that is handed off within a cohort; the fields are those of a claim."""

    identifier: str
    since: float
    deadline: float
    duration: float
    hand_offs: int
    has_queued: bool
    queue_record: QueueRecord | None


class CohortMember(Protocol):
    """A waiter of a cohort."""

    claim: Any
    wakeup: Any

    @property
    def handed_lock(self) -> HandedLock | None:
        """What it was handed, if anything."""

    def hand(self, handed_lock: HandedLock) -> bool:
        """Hand it the lock; False if it has withdrawn."""

    def note_progress(self, now: float) -> None:
        """Note that the waiter makes progress."""

    def withdraw(self) -> HandedLock | None:
        """Accept no lock from now on; what it was handed before, if anything."""


class JoinedCohort(Protocol):
    """The cohort that a claim belongs to."""

    def hand_off(self, claim: Any, now: float) -> bool:
        """Hand the claim's lock to the next waiter; False if there is none or it must not."""

    def note_holder(self, giver: Any, member: Any) -> None:
        """Record that a waiter was handed the lock, unless it has handed it off already."""

    def may_hand_off_at(self, now: float) -> bool:
        """Whether the lock that it holds may be handed off at ``now`` or later."""

    def wake_next(self, now: float) -> None:
        """Wake the first waiter, if it is to lead."""
