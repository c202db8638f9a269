"""The cohorts of one client."""

from __future__ import annotations

from redis_lock_decorators._flow.queue.cohort import Cohort

#: Of more cohorts than these, those without waiters are dropped.
MOST_COHORTS = 256


class Cohorts(dict[tuple[bytes, int], Cohort]):
    """The cohorts of one client, by key and length of lease in milliseconds; for any thread.

    A cohort without waiters is still needed: its holder hands the lock to later ones. Those are
    dropped whenever the number of cohorts has doubled, which costs each cohort the same.
    """

    __slots__ = ("_limit",)

    def __init__(self) -> None:
        super().__init__()
        self._limit = MOST_COHORTS  #: any thread

    def of(self, key: bytes, expire_ms: int) -> Cohort:
        """The cohort of a key, for leases of one length; created if there is none."""
        found = self.get((key, expire_ms))
        if found is None:
            if len(self) >= self._limit:
                self._drop_idle()
            found = self.setdefault((key, expire_ms), Cohort())
        return found

    def _drop_idle(self) -> None:
        for key, cohort in self.copy().items():
            if cohort.is_idle():
                self.pop(key, None)
        self._limit = max(MOST_COHORTS, 2 * len(self))
