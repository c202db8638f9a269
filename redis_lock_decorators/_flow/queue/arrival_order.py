"""The order in which claims of this process began to compete for a key, so that none overtakes."""

from __future__ import annotations

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.waiter import Signal, Wakeup
from redis_lock_decorators._rules.interruptions import CHANGED, is_from_python


class ArrivalOrder:
    """The claims that compete for locks through one client, by key, in order of arrival.

    Each is stored with the wake-up of its waiter, for when it becomes the first, or None.

    Used by all threads without a lock: each step is one operation that cannot be interrupted. Two
    threads that race might not see each other; then both try, and Redis decides.
    """

    __slots__ = ("_claims",)

    def __init__(self) -> None:
        self._claims: dict[bytes, dict[Claim, Wakeup | None]] = {}  #: any thread

    def join(self, key: bytes, claim: Claim) -> bool:
        """Compete for a key; returns whether the claim is the first."""
        own: dict[Claim, Wakeup | None] = {claim: None}
        claims = self._claims.setdefault(key, own)
        if claims is own:
            return True
        claims[claim] = None
        return _first(claims)[0] in (None, claim)

    def leave(self, key: bytes, claim: Claim) -> None:
        """Stop competing; wakes the claim that is the first now."""
        claims = self._claims.get(key)
        if claims is not None:
            claims.pop(claim, None)
            if not claims:
                self._claims.pop(key, None)
            elif (wakeup := _first(claims)[1]) is not None:
                wakeup.notify(Signal.FIRST)

    def set_wakeup(self, key: bytes, claim: Claim, wakeup: Wakeup | None) -> None:
        """Wake its waiter by this when the claim becomes the first; None: no longer.

        The caller must check afterwards whether the claim already is the first.
        """
        claims = self._claims.get(key, {})
        if claim in claims:
            claims[claim] = wakeup

    def is_alone(self, key: bytes, claim: Claim) -> bool:
        """Whether no other claim competes for the key."""
        claims = self._claims.get(key, {})
        return len(claims) == 1 and claim in claims

    def is_first(self, key: bytes, claim: Claim) -> bool:
        """Whether no claim that arrived earlier competes for the key."""
        return _first(self._claims.get(key, {}))[0] in (None, claim)


def _first(claims: dict[Claim, Wakeup | None]) -> tuple[Claim | None, Wakeup | None]:
    """The first claim and its wake-up. Removes claims whose exit was interrupted."""
    while claims:
        try:
            found = next(iter(claims.items()), None)
        except RuntimeError as error:
            if not is_from_python(error, CHANGED):
                raise
            continue  # another thread changed the order during the iteration
        if found is None or found[0].state is not ENDED:
            return found or (None, None)
        claims.pop(found[0], None)
    return None, None
