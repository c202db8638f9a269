"""What a subscriber remembers of queue entries after their waiters have left."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED


class AbandonedEntry:
    """An entry by which no claim holds the lock, now or later."""

    __slots__ = ("identifier", "key")

    def __init__(self, key: bytes, identifier: str) -> None:
        self.key = key
        self.identifier = identifier


class EnteredClaim:
    """The claim that holds a lock by the identifier of an entry; a cohort may hand it off.

    Attributes:
        confirm_at: when to confirm to Redis that the lock was entered; infinity once that is done.
        known_until: it is kept until then at least. A claim that is handed the lock takes over its
            deadline only when it wakes up.
    """

    __slots__ = ("claim", "confirm_at", "identifier", "key", "known_until", "queue_entry")

    def __init__(
        self,
        claim: Claim,
        identifier: str,
        entry: str,
        confirm_at: float,
        known_until: float = -math.inf,
    ) -> None:
        self.key = claim.keys[0]
        self.identifier = identifier
        self.queue_entry = entry
        self.claim = claim  #: any thread
        self.known_until = known_until  #: any thread
        self.confirm_at = confirm_at  #: loop only

    def move(self, before: Claim, after: Claim, now: float) -> None:
        """Record that the claim ``after`` holds the lock, if ``before`` did; from any thread."""
        if self.claim is before:
            self.known_until = now + after.grant_ms / 1000
            self.claim = after

    def is_released(self, now: float) -> bool:
        """Whether the claim was released, and sends nothing with the identifier any longer.

        While it is being released, or kept for ``min_hold``, or past its deadline, Redis may still
        store the identifier. A repeated message must not release the lock then. Another thread may
        hand the claim off, or hold what it was handed, at the same time: the identifier is removed
        from a claim before that one ends, and is given to one that has not ended.
        """
        claim = self.claim
        if claim.cohort is None:  # the claim keeps its identifier
            return claim.state is ENDED and claim.held_until <= now
        return (
            claim.identifier == self.identifier
            and claim.state is ENDED
            and claim.held_until <= now
            and claim.identifier == self.identifier
        )

    def has_expired(self, now: float) -> bool:
        """Whether its lease is over for the holder, which has not released it."""
        return now >= max(self.known_until, self.claim.deadline)
