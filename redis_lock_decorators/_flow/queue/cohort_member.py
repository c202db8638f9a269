"""One who waits for a lock together with others of its process, and what it may be given."""

from __future__ import annotations

import math
from typing import NamedTuple

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue.entries import Entered
from redis_lock_decorators._flow.queue.waiter import Waiter

#: Seconds without a step after which nobody waits for a waiter, nor for one that leads: a handler
#: of signals may keep its thread. That is longer than any of them waits at once.
SILENCE = 3.0
#: The place of what becomes of a waiter: what it is given, or None.
FATE = "fate"


class Handover(NamedTuple):
    """A held lock that is passed on; the names are those of a claim."""

    identifier: str
    since: float
    deadline: float
    lasts: float
    passes: int
    has_queued: bool
    queue_record: Entered | None


class Local:
    """One waiter of a cohort: it is given the lock, or goes without, whichever comes first.

    That is decided in one operation, so that neither another thread nor an exception from outside
    can come between: whoever is given the lock has it, though neither of the two knows yet.

    Attributes:
        acted: when it took its last step; minus infinity while another keeps its thread.
    """

    __slots__ = ("_fate", "acted", "claim", "wakeup")

    def __init__(self, claim: Claim, waiter: Waiter) -> None:
        self.claim = claim
        self.wakeup = waiter
        self.acted = math.inf
        self._fate: dict[str, Handover | None] = {}

    @property
    def gift(self) -> Handover | None:
        """What it was given, if it was."""
        return self._fate.get(FATE)

    def acts(self, now: float) -> None:
        """Note that it takes a step."""
        self.acted = now

    def is_silent(self, now: float) -> bool:
        """Whether it takes no steps, so that nobody is to wait for it."""
        return now > self.acted + SILENCE

    def give(self, gift: Handover) -> bool:
        """Have it hold the lock; False if it is gone."""
        return self._fate.setdefault(FATE, gift) is gift

    def go(self) -> Handover | None:
        """Be given nothing any more; what it was given before, if it was."""
        return self._fate.setdefault(FATE, None)


class Owners:
    """Who waits in a cohort on which thread, or in which task."""

    __slots__ = ("_locals",)

    def __init__(self) -> None:
        self._locals: dict[object, Local] = {}

    def come(self, local: Local) -> None:
        """Know one that waits."""
        if local.claim.owner is not None:
            self._locals[local.claim.owner] = local

    def leave(self, local: Local) -> None:
        """Know it no more."""
        if self._locals.get(local.claim.owner) is local:
            self._locals.pop(local.claim.owner, None)

    def covers(self, claim: Claim) -> bool:
        """Whether another waits below the claim on the same thread, and so takes no steps.

        A handler of signals waits above the code that it interrupts, and so does a finalizer. From
        here on nobody waits for the one below, until it goes on.
        """
        below = self._locals.get(claim.owner)
        if below is None or below.claim.ended:
            return False
        below.acted = -math.inf
        return True
