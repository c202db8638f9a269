"""The claims held through a client, so that none of their holders waits for its own lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from weakref import ref

from redis_lock_decorators._flow.claim import Claim

#: The number of keys before the first search for claims that are over.
LEAST = 64


class HeldClaims(MutableMapping[bytes, Claim]):
    """The claims held through one client, by key. Any thread uses it, without a lock.

    It refers to claims weakly: a lease without a reference cannot be released, and what its holder
    refers to (a task, its result) must not be kept alive. Claims that were never released are
    removed whenever the number of keys has doubled, which costs each claim the same.
    """

    __slots__ = ("_claims", "_limit")

    def __init__(self) -> None:
        self._claims: dict[bytes, ref[Claim]] = {}  #: any thread
        self._limit = LEAST  #: any thread

    def __getitem__(self, key: bytes) -> Claim:
        claim = self._claims[key]()
        if claim is None:
            raise KeyError(key)
        return claim

    def find(self, key: bytes) -> Claim | None:
        """The claim that holds a key; None if there is none. Faster than ``get``."""
        known = self._claims.get(key)
        return None if known is None else known()

    def has_any(self, keys: Iterable[bytes]) -> bool:
        """Whether any of these keys is known; its claim may be over."""
        return not self._claims.keys().isdisjoint(keys)

    def __setitem__(self, key: bytes, claim: Claim) -> None:
        self._claims[key] = ref(claim)

    def __delitem__(self, key: bytes) -> None:
        del self._claims[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key in list(self._claims) if self.get(key) is not None])

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, claim: Claim, now: Callable[[], float]) -> None:
        """Add a claim that is held."""
        weak = ref(claim)
        for key in claim.keys:
            self._claims[key] = weak
        if len(self._claims) >= self._limit:
            self._remove_over(now())

    def forget(self, claim: Claim) -> None:
        """Remove a claim; safe to call from any thread and more than once."""
        for key in claim.keys:
            known = self._claims.get(key)
            if known is not None and known() is claim:
                self._remove(key, known)

    def _remove(self, key: bytes, known: ref[Claim]) -> None:
        """Remove the entry that was found under a key, but not one that replaced it since.

        Comparing and removing are two steps, so an entry that was replaced in between is put back.
        """
        removed = self._claims.pop(key, None)
        if removed is not None and removed != known:
            self._claims.setdefault(key, removed)

    def _remove_over(self, now: float) -> None:
        """Remove the claims that are released or lost, and those without a reference."""
        for key in list(self._claims):
            known = self._claims.get(key)
            claim = None if known is None else known()
            if known is not None and (claim is None or not claim.is_live(now)):
                self._remove(key, known)
        self._limit = 2 * len(self._claims) + LEAST
