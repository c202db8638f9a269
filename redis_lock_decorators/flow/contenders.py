"""Who competes for locks in this process, so that nobody overtakes who began before."""

from __future__ import annotations

from redis_lock_decorators.flow.claim import Claim


class Contenders:
    """The claims that are tried or waited for through one client, by key, in their order.

    Used by all threads, without a lock: each step is one operation that cannot be interrupted. Two
    that race may not see each other; then both try, and the server decides.
    """

    __slots__ = ("_claims",)

    def __init__(self) -> None:
        self._claims: dict[bytes, dict[Claim, None]] = {}

    def join(self, key: bytes, claim: Claim) -> bool:
        """Compete for a key; whether nobody did before."""
        own = {claim: None}
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

    def is_alone(self, key: bytes, claim: Claim) -> bool:
        """Whether nobody else competes for the key."""
        return self._claims.get(key) == {claim: None}

    def is_first(self, key: bytes, claim: Claim) -> bool:
        """Whether nobody who competes for the key began before."""
        claims = self._claims.get(key, {})
        try:
            while (first := next(iter(claims), claim)) is not claim:
                if not first.ended:
                    return False
                claims.pop(first, None)  # it was interrupted when it left
        except RuntimeError:  # another thread came or left this moment
            return False
        return True
