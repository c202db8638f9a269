"""A lease that a keeper looks after: what is due for it, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release import why_expired
from redis_lock_decorators._flow.renewal.batch import Renewal
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import AT_MOST, shown

if TYPE_CHECKING:
    from redis_lock_decorators._flow.renewal.outages import Outage

#: Seconds after its entry that a lock is renewed first which was handed over for a short time.
SETTLED = 0.1
#: A loss is told at most so many seconds early, so that many deadlines need few alarms.
EARLY = 0.01


class TrackedLease:
    """A lease that is kept. It is not kept alive by that: nobody can release what nobody has.

    Attributes:
        notify: called with the lease, once, to tell its holder that it is lost.
        kept: it is to be looked after; set by who hands it in or takes it back, on any thread.
        is_short: it has only the short time for which a lock is handed over.
        due: when it is looked at next.
        batch: the leases that it is being renewed with; None while it is not.
        pauses: between the tries of a renewal whose outcome is not known.
        outage: the outage that keeps it from being renewed, if there is one.
        untold: how often it is tried yet to tell its loss; 0 if there is nothing to tell.
    """

    __slots__ = (
        "_last",
        "batch",
        "claim",
        "due",
        "is_short",
        "kept",
        "lease",
        "notify",
        "options",
        "outage",
        "pauses",
        "port",
        "untold",
    )

    def __init__(
        self,
        lease: object,
        tell: Callable[[Any], None],
        claim: Claim,
        port: Port,
        options: Options,
    ) -> None:
        self.lease = ref(lease)
        self.notify = tell
        self.claim = claim
        self.port = port
        self.kept = False
        self.is_short = claim.duration <= claim.grant_ms / 1000 < options.lease
        self.due = -math.inf
        self.batch: list[TrackedLease] | None = None
        self.pauses: Iterator[float] | None = None
        self.outage: Outage | None = None
        self.options = options
        self.untold = 0
        self._last = math.inf
        if options.max_hold is not None:  # which counts from when the holder could begin
            self._last = max(claim.entered, claim.since) + options.max_hold

    def next_look(self) -> tuple[float, float]:
        """When the lease is to be renewed or told lost, and how much earlier it may be done."""
        end, expire = self.claim.deadline, min(self.options.lease, self.claim.duration)
        if self.batch is not None or not self._is_renewed(end, expire):
            return end, EARLY
        when = lease_times.renewal_due(end, expire)
        if self.is_short:
            return min(when, self.claim.entered + SETTLED), EARLY
        return when, self.options.grain

    def first_look(self) -> float:
        """By when somebody must look at a lease that is shorter than it will be, to renew it.

        That is ``next_look`` with its grain, or a little before: many are passed on in this time.
        """
        claim, options = self.claim, self.options
        if self._last < math.inf:
            when, grain = self.next_look()
            return when - grain
        when = claim.deadline - (1 - lease_times.SHARE) * claim.duration
        if not self.is_short:
            return when - options.grain
        settled = claim.entered + SETTLED
        return (settled if settled < when else when) - EARLY

    def is_due(self, now: float) -> bool:
        """Whether it is time to send a renewal."""
        when, grain = self.next_look()
        return self.batch is None and when < self.claim.deadline and now >= when - grain

    def is_far(self, now: float) -> bool:
        """Whether its server is so far away that a new connection may cost a renewal its time."""
        claim = self.claim
        if (
            now - claim.since <= lease_times.FAR * claim.duration
        ):  # nor did any request of it take longer
            return False
        if self.is_short or self.port.slotted:  # when it was handed over is not known
            return False
        return lease_times.is_far(now, claim.deadline, claim.duration)

    def renewal(self, sent: float) -> Renewal:
        """The renewal that leaves at ``sent``."""
        return Renewal(self.claim, min(self.options.lease, self._last - sent))

    def is_over(self) -> bool:
        """Whether there is nothing left to look after."""
        is_over = self.claim.is_over() and not self.untold
        return not self.kept or is_over or self.lease() is None

    def why_over(self) -> str:
        """Why the lease ended, where Redis did not say."""
        if lease_times.is_last(self.claim.deadline, self.options.lease, self._last):
            return f"{AT_MOST} {self.options.max_hold:.3g} s is over"
        return why_expired(self.claim)

    def _is_renewed(self, end: float, expire: float) -> bool:
        self.claim.renews = self.options.auto_renew and not lease_times.is_last(
            end, expire, self._last
        )
        return self.claim.renews


class Alone:
    """What one lease raises in this block is logged, and keeps nothing from the others.

    A KeyboardInterrupt or SystemExit goes on to who runs the event loop.

    Args:
        tracked: the lease.
        after: called with it in both cases, to look at it again.
    """

    __slots__ = ("_after", "_tracked")

    def __init__(self, tracked: TrackedLease, after: Callable[[TrackedLease], None]) -> None:
        self._tracked = tracked
        self._after = after

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        self._after(self._tracked)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return False
        note(self._tracked, error)
        return True


def note(tracked: TrackedLease, error: BaseException) -> None:
    """Log an error; a filter or handler that raises one too keeps nobody from anything."""
    try:
        log.error("looking after lock %s failed", shown(tracked.claim.lock_name), exc_info=error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return


def popped(tracked_leases: set[TrackedLease]) -> TrackedLease | None:
    """One of them, taken away in one step: another thread may take the last one meanwhile."""
    try:
        return tracked_leases.pop()
    except KeyError:
        return None
