"""One waiter of a cohort, and the threads and tasks whose waiters a cohort has."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.membership import HandedLock
from redis_lock_decorators._flow.queue.waiter import Wakeup

#: Seconds without progress after which a waiter, or a leader, is passed over: a signal handler may
#: occupy its thread. Longer than any of them sleeps at a time.
WAITER_SILENCE = 3.0
#: The key of the outcome: the handed lock, or None if the waiter has withdrawn.
OUTCOME = "outcome"


class CohortWaiter:
    """One waiter of a cohort: it is handed the lock or withdraws, whichever happens first.

    ``dict.setdefault`` decides, one operation that neither another thread nor an exception from
    outside can split: a waiter that was handed the lock holds it, even if it does not know yet.

    Attributes:
        acted: when it last made progress; minus infinity while other code occupies its thread.
    """

    __slots__ = ("_outcome", "acted", "claim", "wakeup")

    def __init__(self, claim: Claim, wakeup: Wakeup) -> None:
        self.claim = claim
        self.wakeup = wakeup
        self.acted = math.inf  #: any thread
        self._outcome: dict[str, HandedLock | None] = {}  #: any thread

    @property
    def handed_lock(self) -> HandedLock | None:
        """What it was handed, if anything."""
        return self._outcome.get(OUTCOME)

    def note_progress(self, now: float) -> None:
        """Note that the waiter makes progress."""
        self.acted = now

    def is_silent(self, now: float) -> bool:
        """Whether it has made no progress for so long that it is to be passed over."""
        return now > self.acted + WAITER_SILENCE

    def hand(self, handed_lock: HandedLock) -> bool:
        """Hand it the lock; False if it has withdrawn."""
        return self._outcome.setdefault(OUTCOME, handed_lock) is handed_lock

    def withdraw(self) -> HandedLock | None:
        """Accept no lock from now on; what it was handed before, if anything."""
        return self._outcome.setdefault(OUTCOME, None)


class WaitingOwners:
    """The waiters of a cohort by their thread or task."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[object, CohortWaiter] = {}  #: any thread; each key by its owner alone

    def add(self, waiter: CohortWaiter) -> None:
        """Add a waiter, unless its owner is unknown."""
        if waiter.claim.owner is not None:
            self._waiters[waiter.claim.owner] = waiter

    def remove(self, waiter: CohortWaiter) -> None:
        """Remove a waiter, unless another one of its owner has replaced it."""
        if self._waiters.get(waiter.claim.owner) is waiter:
            self._waiters.pop(waiter.claim.owner, None)

    def suspend_for(self, claim: Claim) -> bool:
        """Whether the claim's thread already waits further up its stack.

        Signal handlers and finalizers run on top of the code that they interrupt. That waiter makes
        no progress until they return, so it is marked as silent.
        """
        suspended = self._waiters.get(claim.owner)
        if suspended is None or suspended.claim.state is ENDED:
            return False
        suspended.acted = -math.inf
        return True
