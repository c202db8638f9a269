"""Renew leases while their holders work, and notify holders of lost leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import why_refused
from redis_lock_decorators._flow.renewal.batch import Outcome, Renewal, renew
from redis_lock_decorators._flow.renewal.outages import Outages, record_sent
from redis_lock_decorators._flow.renewal.schedule import RETRY_PAUSE, LeaseSchedule, RenewerLoop
from redis_lock_decorators._flow.renewal.tracked_lease import (
    EARLY,
    LOOP_ENDED,
    Isolated,
    TrackedLease,
    log_end,
    log_failure,
    report_if_dropped,
    warn_if_dropped,
)
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules.redaction import described

__all__ = ["Renewer", "RenewerLoop", "TrackedLease"]

#: How often a holder is notified of a loss while the notification is cut short.
MOST_NOTIFY_ATTEMPTS = 10


class Renewer(LeaseSchedule):
    """Renews the leases of one event loop, or of all threads of a process.

    Everything here is called by ``tick`` and runs on the event loop only.
    """

    def __init__(self, lease_loop: RenewerLoop) -> None:
        super().__init__(lease_loop)
        self._outages = Outages()
        #: loop only: lost leases, in the order in which their holders are notified
        self._unnotified: dict[TrackedLease, None] = {}

    def tick(self) -> None:
        """Do what is due, and wake up for the rest.

        An error concerning one lease is logged and does not affect the others. After a
        KeyboardInterrupt or SystemExit the next tick continues where this one ended.

        Notifications come last, as ``on_lost`` may run the event loop, and so another tick.
        """
        due, batches = self._due, self._batches
        try:
            self._absorb()
            now = self._lease_loop.now()
            self._wheel.take(now, due)
            while due:
                self._check(due[-1], now)
                due.pop()
            while batches:
                batch_key, batch = next(iter(batches.items()))
                self._send(batch)
                if batches.get(batch_key) is batch:  # a task that starts eagerly may run the loop
                    del batches[batch_key]
        finally:
            self._set_wake_up()
        self._notify_holders()

    def held(self) -> list[TrackedLease]:
        """The leases that were neither released nor reported as lost."""
        known = {*self._new, *self._wheel, *self._due}
        return [one for one in known if one.is_tracked and not one.notify_attempts]

    def end(self, is_left: Callable[[Claim], bool]) -> None:
        """Report the leases that are still held as lost: their event loop ends, and so this.

        Nothing else could: they are neither renewed nor checked any more. ``is_left`` returns
        whether nobody is in a block of a claim.
        """
        now = self._lease_loop.now()
        for tracked in self.held():
            with Isolated(tracked, self._schedule_soon):
                if tracked.is_over():
                    report_if_dropped(tracked, now)
                elif is_left(tracked.claim):
                    log_end(tracked)
                    self._lose(tracked, LOOP_ENDED)
        self._notify_holders()

    def _check(self, tracked: TrackedLease, now: float) -> None:
        """Do what is due for a lease, or add it to the batch of its client and its nodes."""
        end = tracked.claim.deadline
        with Isolated(tracked, self._schedule_soon):
            if tracked.is_over():
                warn_if_dropped(tracked, now)
                self._unschedule(tracked)
            elif tracked.notify_attempts:
                self._notify_soon(tracked)
            elif now >= end - EARLY:
                self._lose(tracked, tracked.why_over())
            elif tracked.is_due(now):
                self._schedule(tracked, end, EARLY)  # to report a loss even if the renewal hangs
                batch = self._batches.setdefault(tracked.batch_key(), [])
                batch.append(tracked)
                tracked.batch = batch
            else:
                self._schedule(tracked, *tracked.next_check())

    def _send(self, batch: list[TrackedLease]) -> None:
        """Renew leases of one client, whose keys are at the same nodes, in the background."""
        work = self._renew(batch)
        try:
            self._lease_loop.start(work, lambda: self._batch_ended(batch))
        except BaseException as error:
            work.close()
            self._batch_ended(batch)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            log_failure(batch[0], error)

    def _batch_ended(self, batch: list[TrackedLease]) -> None:
        """Renew the leases again for which the work has no outcome, as when it was cut short."""
        for tracked in batch:
            if tracked.batch is batch:
                self._schedule_soon(tracked)
                tracked.batch = None  # last: if this is cut short, it is called once more

    async def _prepare(self, tracked: TrackedLease) -> None:
        """Connect, and load the script into the server, before the first renewal is due."""
        port, script = self._lease_loop.port(tracked.port), _lua.script("renew")
        if isinstance(port, type(tracked.port)):  # it uses the connection that was just used
            return
        request = ("EVAL", script.text, 0, "", next(port.serials))
        try:
            await port.send_renewal(*request, until=tracked.claim.deadline)
        except Exception as error:
            log.debug("no connection for renewals yet: %s", described(error))

    async def _renew(self, batch: list[TrackedLease]) -> None:
        sent = self._lease_loop.now()
        own = [tracked for tracked in batch if tracked.claim.is_of_this_process()]
        timely = [tracked for tracked in own if tracked.claim.deadline > sent]
        ends = min([tracked.claim.deadline for tracked in timely], default=sent)
        renewals = [tracked.renewal(sent) for tracked in timely]
        outcomes: Sequence[Outcome]
        try:
            port = self._lease_loop.port(batch[0].port)
        except Exception as error:  # the background port needs something the client lacks now
            outcomes = [error] * len(renewals)
        else:
            record_sent(timely, sent)
            # Half of the time left, so that there is time for a second try on a new connection. But
            # if the event loop is blocked for longer, it is still sent.
            outcomes = await renew(port, renewals, TimeLimits(sent + (ends - sent) / 2, ends))
        for tracked, renewal, outcome in zip(timely, renewals, outcomes, strict=True):
            with Isolated(tracked, self._schedule_soon):
                tracked.batch = None
                if not tracked.is_over() and not tracked.notify_attempts:
                    self._conclude(tracked, renewal, outcome, sent)
                if tracked.is_over():  # it may have been dropped during the renewal
                    warn_if_dropped(tracked, self._lease_loop.now())
                    self._unschedule(tracked)
        self._notify_holders()

    def _conclude(
        self, tracked: TrackedLease, renewal: Renewal, outcome: Outcome, sent: float
    ) -> None:
        claim, now = tracked.claim, self._lease_loop.now()
        if isinstance(outcome, Refusal):
            claim.lost_holder = outcome.holder
            self._lose(tracked, why_refused(claim, outcome, now))
            return
        if outcome is not None:
            self._outages.record_failure(tracked, outcome, sent, now)
        if now >= claim.deadline:  # too late: code may have seen already that the lease is lost
            self._lose(tracked, tracked.why_over())
        elif outcome is None:
            if claim.observer is not None:
                claim.observer.renewed(claim, now, now - sent)
            claim.prolong(sent, renewal.seconds)
            self._outages.end(tracked, now)
            tracked.pauses, tracked.is_grant, tracked.confirmed = None, False, sent
            self._schedule(tracked, *tracked.next_check())
        else:
            if claim.observer is not None:
                claim.observer.unrenewed(claim, now)
            tracked.pauses = tracked.pauses or delays.recovering(self._lease_loop.random)
            pause = delays.limited(next(tracked.pauses), claim.deadline - now)
            self._schedule(tracked, min(now + pause, claim.deadline), EARLY)

    def _lose(self, tracked: TrackedLease, why: str) -> None:
        tracked.notify_attempts = tracked.notify_attempts or MOST_NOTIFY_ATTEMPTS
        tracked.claim.lost_reason = why
        if tracked.claim.observer is not None:
            tracked.claim.observer.lost(tracked.claim, self._lease_loop.now(), why)
        self._notify_soon(tracked)

    def _notify_soon(self, tracked: TrackedLease) -> None:
        """Notify the holder after the other leases; the lease stays scheduled until then."""
        self._schedule(tracked, self._lease_loop.now() + RETRY_PAUSE, EARLY)
        self._unnotified[tracked] = None

    def _notify_holders(self) -> None:
        """Notify holders of their losses; a nested call, in ``on_lost``, continues this one."""
        while self._unnotified:
            tracked = next(iter(self._unnotified))
            with Isolated(tracked, self._schedule_soon):
                if not tracked.is_over():
                    self._notify_holder(tracked)
            self._unnotified.pop(tracked, None)

    def _notify_holder(self, tracked: TrackedLease) -> None:
        tracked.notify_attempts -= 1
        tracked.port.held.forget(tracked.claim)
        lease = tracked.found()
        if lease is not None:
            tracked.notify(lease)
        tracked.notify_attempts = 0
        self._unschedule(tracked)

    def _unschedule(self, tracked: TrackedLease) -> None:
        super()._unschedule(tracked)
        self._outages.leave(tracked)
