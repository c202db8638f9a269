"""Renewals that fail: noted for each lease, logged once for all leases of a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.term import Unrenewed
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.errors import in_seconds, shown

#: What a server lacks until an administrator changes something.
_LASTING = ("right", "command", "memory")
#: Seconds within which a renewal fails over a connection that was closed while it was idle. The
#: next try uses a new one, so that is no outage yet.
STALE = 0.1


class OutageLease(Protocol):
    """What an outage needs of a lease."""

    @property
    def claim(self) -> Claim: ...

    @property
    def port(self) -> Port: ...

    outage: Outage | None


class Outage:
    """A period in which leases of a client cannot be renewed.

    Attributes:
        since: when the first renewal that failed was sent.
        kind: the client, and whether its server refuses renewals.
        leases: those that were not renewed since, and are still held.
        count: how many there were in total.
    """

    def __init__(self, since: float, kind: tuple[int, bool]) -> None:
        self.since = since
        self.kind = kind
        self.leases: set[OutageLease] = set()
        self.count = 0


class Outages:
    """The current outages of one event loop, one for each client and cause.

    An outage is logged when it begins, and when the last of its leases that is still held is
    renewed.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, bool], Outage] = {}

    def record_failure(self, lease: OutageLease, error: Exception, sent: float, now: float) -> None:
        """Record that a renewal sent at ``sent`` failed, or that its outcome is unknown ``now``."""
        text, is_refused = described(error), lease.port.lacks(error) in _LASTING
        before = lease.claim.unrenewed
        since = sent if before is None else before.since
        lease.claim.unrenewed = Unrenewed(since, text, is_refused)
        if not is_refused and now - since < STALE and not (before is not None and before.error):
            log.debug("first renewal attempt of lock %s failed (%s); retrying", _name(lease), text)
            return
        kind = (id(lease.port.client), is_refused)
        outage = self._open.get(kind)
        if outage is None:
            outage = self._open[kind] = Outage(sent, kind)
            _warn(lease, text, is_refused)
        if lease.outage is not outage:
            self.leave(lease)
            outage.leases.add(lease)
            outage.count += 1
            lease.outage = outage

    def end(self, lease: OutageLease, now: float) -> None:
        """Record that a lease was renewed."""
        outage = lease.outage
        if outage is None:
            return
        self.leave(lease)
        if not outage.leases:
            log.info(
                "leases are renewed again, after %s in which the renewal of %d failed",
                *(in_seconds(now - outage.since), outage.count),
            )

    def leave(self, lease: OutageLease) -> None:
        """Remove a lease that is no longer renewed, or no longer affected, from its outage."""
        outage, lease.outage = lease.outage, None
        if outage is None:
            return
        outage.leases.discard(lease)
        if not outage.leases and self._open.get(outage.kind) is outage:
            del self._open[outage.kind]


def record_sent(leases: Iterable[OutageLease], sent: float) -> None:
    """Record that renewals are sent now: until a reply arrives, nothing else is known."""
    unanswered = Unrenewed(sent)
    for lease in leases:
        if lease.claim.unrenewed is None:
            lease.claim.unrenewed = unanswered


def _name(lease: OutageLease) -> str:
    return shown(lease.claim.lock_name)


def _warn(lease: OutageLease, text: str, is_refused: bool) -> None:
    if is_refused:
        log.warning(
            "the server refuses to renew lock %s, and maybe others of this client (%s): they are "
            "lost when their leases end, unless it is allowed before",
            *(_name(lease), text),
        )
    else:
        log.warning(
            "lock %s could not be renewed (%s), and other locks of this client may be affected: "
            "retrying until their leases end",
            *(_name(lease), text),
        )
