"""Which claims are held through a client, so that nobody waits for what he holds himself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from weakref import ref

from redis_lock_decorators._flow.claim import Claim

#: So many keys are remembered before the first search for claims that are over.
LEAST = 64


class HeldClaims(MutableMapping[bytes, Claim]):
    """The claims held through one client, by key; used by all threads, without a lock.

    A claim is referred to weakly: nobody can release a lease that nobody has, and what its holder
    refers to (a task, its result) is not kept alive. Claims that were never released are taken
    out when the number of keys has doubled since they were searched for last, so each claim costs
    the same however many there are.
    """

    __slots__ = ("_claims", "_limit")

    def __init__(self) -> None:
        self._claims: dict[bytes, ref[Claim]] = {}
        self._limit = LEAST

    def __getitem__(self, key: bytes) -> Claim:
        claim = self._claims[key]()
        if claim is None:
            raise KeyError(key)
        return claim

    def find(self, key: bytes) -> Claim | None:
        """The claim that holds a key, if there is one: ``get`` without an exception behind it."""
        known = self._claims.get(key)
        return None if known is None else known()

    def __setitem__(self, key: bytes, claim: Claim) -> None:
        self._claims[key] = ref(claim)

    def __delitem__(self, key: bytes) -> None:
        del self._claims[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key in list(self._claims) if self.get(key) is not None])

    def __len__(self) -> int:
        return len(self._claims)

    def note(self, claim: Claim, now: Callable[[], float]) -> None:
        """Know that a claim is held."""
        weak = ref(claim)
        for key in claim.keys:
            self._claims[key] = weak
        if len(self._claims) >= self._limit:
            self._search(now())

    def forget(self, claim: Claim) -> None:
        """Know that a claim is held no more; from any thread, also twice at once."""
        for key in claim.keys:
            known = self._claims.get(key)
            if known is not None and known() is claim:
                self._remove(key, known)

    def _remove(self, key: bytes, known: ref[Claim]) -> None:
        """Take out what was seen there, though another thread may put something else in its place.

        To compare and to delete are two steps, so what was deleted is looked at once more.
        """
        removed = self._claims.pop(key, None)
        if removed is not None and removed != known:
            self._claims.setdefault(key, removed)

    def _search(self, now: float) -> None:
        """Take out what is over."""
        for key in list(self._claims):
            known = self._claims.get(key)
            claim = None if known is None else known()
            if known is not None and (claim is None or not claim.is_live(now)):
                self._remove(key, known)
        self._limit = 2 * len(self._claims) + LEAST
