"""Who competes for locks in this process, so that nobody overtakes who began before."""

from __future__ import annotations

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.waiter import Signal, Waiter
from redis_lock_decorators._rules.interruptions import CHANGED, is_from_python


class ArrivalOrder:
    """The claims that are tried or waited for through one client, by key, in their order.

    Beside each is whom to tell when it becomes the first; None while that wants to know nothing.

    Used by all threads, without a lock: each step is one operation that cannot be interrupted. Two
    that race may not see each other; then both try, and the server decides.
    """

    __slots__ = ("_claims",)

    def __init__(self) -> None:
        self._claims: dict[bytes, dict[Claim, Waiter | None]] = {}

    def join(self, key: bytes, claim: Claim) -> bool:
        """Compete for a key; whether nobody did before."""
        own: dict[Claim, Waiter | None] = {claim: None}
        claims = self._claims.setdefault(key, own)
        if claims is own:
            return True
        claims[claim] = None
        return self.is_first(key, claim)

    def leave(self, key: bytes, claim: Claim) -> None:
        """Compete no more."""
        claims = self._claims.get(key)
        if claims is not None:
            claims.pop(claim, None)
            if not claims:
                self._claims.pop(key, None)
            elif (waiter := _first(claims)[1]) is not None:
                waiter.notify(Signal.FIRST)

    def attend(self, key: bytes, claim: Claim, waiter: Waiter | None) -> None:
        """Have a waiter be told when its claim becomes the first; None: not any more.

        Whether it is the first already is to be asked afterwards.
        """
        claims = self._claims.get(key, {})
        if claim in claims:
            claims[claim] = waiter

    def is_alone(self, key: bytes, claim: Claim) -> bool:
        """Whether nobody else competes for the key."""
        claims = self._claims.get(key, {})
        return len(claims) == 1 and claim in claims

    def is_first(self, key: bytes, claim: Claim) -> bool:
        """Whether nobody who competes for the key began before."""
        return _first(self._claims.get(key, {}))[0] in (None, claim)


def _first(claims: dict[Claim, Waiter | None]) -> tuple[Claim | None, Waiter | None]:
    """Who began first, and whom to tell. Forgets those who were interrupted when they left."""
    while claims:
        try:
            found = next(iter(claims.items()), None)
        except RuntimeError as error:
            if not is_from_python(error, CHANGED):
                raise
            continue  # another thread came or left this moment
        if found is None or found[0].state is not ENDED:
            return found or (None, None)
        claims.pop(found[0], None)
    return None, None
