"""Renewals that fail: noted for each lease, told once for all leases of a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from redis_lock_decorators._flow.claim import Unrenewed
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators.errors import shown

if TYPE_CHECKING:
    from redis_lock_decorators._flow.renewal.renewed_lease import TrackedLease

#: What is missing for as long as nobody gives it.
_LASTING = ("right", "command", "memory")
#: Seconds within which a renewal fails over a connection that was closed while it was idle. The
#: next try takes another, so that is no outage yet.
STALE = 0.1


class Outage:
    """A time in which leases of a client are not renewed.

    Attributes:
        since: when the first renewal was sent that failed.
        place: where it is noted.
        leases: those that are not renewed since, and are held yet.
        count: how many there were in all.
    """

    def __init__(self, since: float, place: tuple[int, bool]) -> None:
        self.since = since
        self.place = place
        self.leases: set[TrackedLease] = set()
        self.count = 0


class Outages:
    """The outages that last, one for each client and cause. Of one event loop.

    An outage is told when it begins, and when the last of its leases that is held yet is renewed.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, bool], Outage] = {}

    def note(self, watch: TrackedLease, error: Exception, sent: float, now: float) -> None:
        """A renewal sent at ``sent`` has failed, or its outcome is not known ``now``."""
        text, is_refused = f"{type(error).__name__}: {error}", watch.port.lacks(error) in _LASTING
        before = watch.claim.unrenewed
        since = sent if before is None else before.since
        watch.claim.unrenewed = Unrenewed(since, text, is_refused)
        if not is_refused and now - since < STALE and not (before is not None and before.error):
            log.debug("lock %s was not renewed at once (%s)", shown(watch.claim.lock_name), text)
            return
        place = (id(watch.port.client), is_refused)
        outage = self._open.get(place)
        if outage is None:
            outage = self._open[place] = Outage(sent, place)
            _tell(watch, text, is_refused)
        if watch.outage is not outage:
            self.leave(watch)
            outage.leases.add(watch)
            outage.count += 1
            watch.outage = outage

    def end(self, watch: TrackedLease, now: float) -> None:
        """A lease was renewed."""
        outage = watch.outage
        if outage is None:
            return
        self.leave(watch)
        if not outage.leases:
            log.info(
                "leases are renewed again, after %.3g s in which the renewal of %d failed",
                *(now - outage.since, outage.count),
            )

    def leave(self, watch: TrackedLease) -> None:
        """A lease is not looked after any more, or not kept from being renewed by this outage."""
        outage, watch.outage = watch.outage, None
        if outage is None:
            return
        outage.leases.discard(watch)
        if not outage.leases and self._open.get(outage.place) is outage:
            del self._open[outage.place]


def note_asked(watches: Iterable[TrackedLease], sent: float) -> None:
    """Note that renewals leave now; until they are answered, that is all that is known."""
    asked = Unrenewed(sent)
    for watch in watches:
        if watch.claim.unrenewed is None:
            watch.claim.unrenewed = asked


def _tell(watch: TrackedLease, text: str, is_refused: bool) -> None:
    lock_name = shown(watch.claim.lock_name)
    if is_refused:
        log.warning(
            "the server refuses to renew lock %s, and maybe others of this client (%s): they are "
            "lost when their leases end, unless that is allowed before",
            *(lock_name, text),
        )
    else:
        log.warning(
            "lock %s could not be renewed, and maybe others of this client (%s): they are tried "
            "again until their leases end",
            *(lock_name, text),
        )
