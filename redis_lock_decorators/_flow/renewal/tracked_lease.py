"""A lease that is renewed: when it is checked, and what is due then."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import why_expired
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort import MOST_SECONDS
from redis_lock_decorators._flow.renewal.batch import Renewal
from redis_lock_decorators._flow.renewal.outages import Outage
from redis_lock_decorators._flow.renewal.ownership import has_owner
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import AT_MOST, in_seconds, shown

#: The ``id`` of a client, and the cluster nodes of some keys.
BatchKey = tuple[int, frozenset[object]]

#: Seconds after its entry at which a holder renews a grant for the first time.
FIRST_RENEWAL = 0.1
#: The same for a member of a cohort that stores information about its holder: its cohort no longer
#: hands off the lock then.
FIRST_OF_MEMBER = MOST_SECONDS + 0.05
#: A loss is reported at most so many seconds early, so that many deadlines need few wake-ups.
EARLY = 0.01
#: Why a lease is lost that no code can release.
DROPPED = "it was garbage-collected without a release"
#: The same for one whose event loop has ended.
LOOP_ENDED = "its event loop ended before its release"


class TrackedLease:
    """A lease that is renewed until it is released or lost, or no code can release it.

    Only a weak reference to it is held: a lease that no code can release must expire. Nothing else
    here may refer to it either, such as the context of its acquisition, or its ``on_lost``.

    Attributes:
        ownership: the mark that the owner of the lease has (``ownership.py``): the lease itself, or
            the block that owns it.
        substitute: returns a lease for ``notify`` while the garbage collector closes a generator
            that holds the lease; None if there is nothing to report then.
        notify: called with the lease, once, to report its loss to its holder.
        is_tracked: it is to be renewed.
        is_grant: it still has the short time of a grant, or information about its holder is still
            to be stored: it is renewed soon.
        due: when it is checked next.
        batch: the leases that are renewed together with it; None while no renewal is under way.
        confirmed: when the last renewal was sent that found the lease held.
        pauses: between the tries of a renewal whose outcome is unknown.
        outage: the outage that prevents its renewal, if there is one.
        notify_attempts: how many attempts to report its loss are left; 0 if there is none to
            report.
    """

    __slots__ = (
        "_hold_end",
        "batch",
        "claim",
        "confirmed",
        "due",
        "is_grant",
        "is_tracked",
        "lease",
        "notify",
        "notify_attempts",
        "options",
        "outage",
        "ownership",
        "pauses",
        "port",
        "substitute",
    )

    def __init__(
        self,
        lease: object,
        notify: Callable[[Any], None],
        claim: Claim,
        port: Port,
        options: Options,
    ) -> None:
        self.lease = ref(lease)
        self.ownership = object()
        self.substitute: Callable[[TrackedLease], object] | None = None
        self.notify = notify
        self.claim = claim
        self.port = port
        self.is_tracked = False  #: any thread
        self.options = options  #: any thread
        self.due = -math.inf  #: written by the loop, read by any thread
        #: loop only
        self.is_grant = claim.duration <= claim.grant_ms / 1000 < options.lease_seconds
        self.confirmed = -math.inf
        if claim.owner_info is not None and not claim.owner_info.is_complete(claim):
            self.is_grant = True
        self.batch: list[TrackedLease] | None = None
        self.pauses: Iterator[float] | None = None
        self.outage: Outage | None = None
        self.notify_attempts = 0
        self._hold_end = math.inf
        if options.max_hold is not None:  # counted from when the holder could begin its work
            self._hold_end = max(claim.entered, claim.since) + options.max_hold

    def next_check(self) -> tuple[float, float]:
        """When to renew the lease or report its loss, and how many seconds earlier is fine."""
        end, expire = self.claim.deadline, min(self.options.lease_seconds, self.claim.duration)
        if self.batch is not None or not self._update_renews(end, expire):
            return end, EARLY
        when = lease_times.renewal_due(end, expire)
        if self.claim.duration > expire:  # a renewal does not prolong it, but notices its loss
            confirmed = max(self.confirmed, lease_times.sent(end, self.claim.duration))
            when = min(when, confirmed + lease_times.SHARE * expire)
        if self.is_grant:
            return min(when, self._first_renewal()), EARLY
        return when, self.options.grain

    def first_check(self) -> float:
        """By when to check a lease first that is shorter than it will be, to renew it in time.

        That is ``next_check`` less its grain, or a little before. It is computed here in fewer
        steps, as a cohort hands off many leases within this time.
        """
        claim, options = self.claim, self.options
        if self._hold_end < math.inf:
            when, grain = self.next_check()
            return when - grain
        when = claim.deadline - (1 - lease_times.SHARE) * claim.duration
        if not self.is_grant:
            return when - options.grain
        first = self._first_renewal()
        return (first if first < when else when) - EARLY

    def is_due(self, now: float) -> bool:
        """Whether it is time to send a renewal."""
        when, grain = self.next_check()
        return self.batch is None and when < self.claim.deadline and now >= when - grain

    def batch_key(self) -> BatchKey:
        """Which leases are renewed together with it: those of its client at the same nodes.

        A batch ends with the last reply. A node that does not reply must not delay the renewals at
        other nodes, which have no time limit if the client has none.
        """
        port = self.port
        nodes = map(port.node, self.claim.keys) if port.slotted else ()
        return id(port.client), frozenset(nodes)

    def is_far(self, now: float) -> bool:
        """Whether the round trip is so long that connecting may cost a renewal its time."""
        claim = self.claim
        if now - claim.since <= lease_times.FAR * claim.duration:  # no request of it took longer
            return False
        if self.is_grant or self.port.slotted:  # the time of the grant is not known
            return False
        return lease_times.is_far(now, claim.deadline, claim.duration)

    def renewal(self, sent: float) -> Renewal:
        """The renewal that is sent at ``sent``."""
        claim, is_first = self.claim, self.confirmed == -math.inf
        is_far = claim.entered - claim.since > lease_times.FAR * claim.duration
        seconds = min(self.options.lease_seconds, self._hold_end - sent)
        return Renewal(claim, seconds, sends_text=is_first and is_far)

    def is_over(self) -> bool:
        """Whether the lease needs neither a renewal nor a report, as in a forked child."""
        is_over = self.claim.is_over() and not self.notify_attempts
        is_other = not self.claim.is_of_this_process()
        return not self.is_tracked or is_over or is_other or self.is_dropped()

    def is_dropped(self) -> bool:
        """Whether no code can release the lease."""
        return self.lease() is None and not has_owner(self)

    def found(self) -> object:
        """The lease to notify; None if there is none."""
        lease = self.lease()
        substitute = self.substitute  # another thread may clear the attribute
        return substitute(self) if lease is None and substitute is not None else lease

    def why_over(self) -> str:
        """Why the lease ended, where Redis gave no reason."""
        max_hold, lease_seconds = self.options.max_hold, self.options.lease_seconds
        if max_hold and lease_times.is_last(self.claim.deadline, lease_seconds, self._hold_end):
            return f"{AT_MOST} {in_seconds(max_hold)} is over"
        return why_expired(self.claim)

    def _first_renewal(self) -> float:
        """When a grant is renewed for the first time."""
        claim = self.claim
        is_member = claim.owner_info is not None and claim.cohort is not None
        return claim.entered + (FIRST_OF_MEMBER if is_member else FIRST_RENEWAL)

    def _update_renews(self, end: float, expire: float) -> bool:
        """Record whether the lease will be renewed, and return that."""
        is_last = lease_times.is_last(end, expire, self._hold_end)
        self.claim.renews = self.options.auto_renew and not is_last and has_owner(self)
        return self.claim.renews


class Isolated:
    """Log an exception of this block, so that it does not affect other leases.

    KeyboardInterrupt and SystemExit are raised, to the code that runs the event loop.

    Args:
        tracked: the lease.
        retry: called with it after any exception, to check it again.
    """

    __slots__ = ("_retry", "_tracked")

    def __init__(self, tracked: TrackedLease, retry: Callable[[TrackedLease], None]) -> None:
        self._tracked = tracked
        self._retry = retry

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        self._retry(self._tracked)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return False
        log_failure(self._tracked, error)
        return True


def log_failure(tracked: TrackedLease, error: BaseException) -> None:
    """Log an error. One that a filter or handler raises is dropped."""
    try:
        log.error("renewing lock %s failed", shown(tracked.claim.lock_name), exc_info=error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return


def warn_if_dropped(tracked: TrackedLease, now: float) -> None:
    """Log that a renewed lease was garbage-collected without a release, so that it will expire.

    A lease that was over for another reason may be tracked again by now: another thread extends it.
    """
    claim = tracked.claim
    if not claim.is_of_this_process():
        return
    is_renewed = tracked.options.auto_renew and tracked.is_tracked
    if is_renewed and claim.is_live(now) and tracked.is_dropped():
        log.warning(
            "the lease of lock %s was garbage-collected without a release, so it is no longer "
            "renewed: keep what acquire() returns until its release()",
            shown(claim.lock_name),
        )
    report_if_dropped(tracked, now)


def report_if_dropped(tracked: TrackedLease, now: float) -> None:
    """Report a lease that was garbage-collected without a release to its hooks."""
    claim = tracked.claim
    if claim.observer is not None and tracked.is_tracked and tracked.is_dropped():
        claim.observer.lost(claim, now, DROPPED)


def log_end(tracked: TrackedLease) -> None:
    """Log that a renewed lease outlives its event loop, so that it will expire.

    No warning: mostly the program ends, and a thread that leaves a lease then is not warned either.
    """
    if tracked.options.auto_renew:
        log.info(
            "the event loop of the lease of lock %s ends without its release, so it is no longer "
            "renewed: release it before, or use 'async with'",
            shown(tracked.claim.lock_name),
        )


def popped(tracked_leases: set[TrackedLease]) -> TrackedLease | None:
    """Remove and return one lease, None if there is none; one step, as threads remove some too."""
    try:
        return tracked_leases.pop()
    except KeyError:
        return None
