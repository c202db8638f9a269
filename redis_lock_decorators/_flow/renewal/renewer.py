"""Keeping leases alive while their holders work, and telling who lost one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.background import Loop
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.release import forget, why_refused
from redis_lock_decorators._flow.renewal.batch import Outcome, Renewal, renew
from redis_lock_decorators._flow.renewal.outages import Outages, note_asked
from redis_lock_decorators._flow.renewal.renewed_lease import (
    EARLY,
    Alone,
    TrackedLease,
    note,
    popped,
)
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._rules import delays, lease_times
from redis_lock_decorators._rules.timer_wheel import TimerWheel

__all__ = ["Renewer", "RenewerLoop", "TrackedLease"]


#: So many leases taken back are left on the wheel until the next look.
MOST_GONE = 256
#: The least pause, in seconds, before what was cut short is begun again.
CUT = 0.02
#: So often it is tried to tell a loss, where that is cut short.
MOST_TELLS = 10


class RenewerLoop(Loop, Protocol):
    """What a keeper needs of the event loop that it works on.

    Attributes:
        phase: where in time the loop rounds from.
    """

    phase: float

    def wake_at(self, when: float) -> None:
        """Call the keeper's ``tick`` by this time. Infinity: for nothing."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""


class Renewer:
    """Looks after the leases of one event loop, or of all threads of a process.

    Every rule of it is in ``tick`` and what that calls; it runs on the event loop alone. Other
    threads only hand leases in and take them back, without a lock: an exception may come between
    any two lines. So a lease is never taken from one place before it is in another, and what was
    begun for it is noted as done after it was.

    Only the event loop sets its alarm and writes down when that rings. Another thread first hands
    in, then reads that time, and asks for an earlier alarm if it is too late; the event loop, after
    putting the alarm off, looks once more at what was handed in. So either the thread sees the new
    time or the event loop sees what the thread handed in.
    """

    def __init__(self, lease_loop: RenewerLoop) -> None:
        self._lease_loop = lease_loop
        self._new: set[TrackedLease] = set()
        self._gone: set[TrackedLease] = set()
        self._wheel: TimerWheel[TrackedLease] = TimerWheel(lease_loop.phase)
        # What is being done, and goes on in the next tick if this one is cut short.
        self._due: list[TrackedLease] = []
        self._batches: dict[int, list[TrackedLease]] = {}
        self._wakes_at = math.inf
        self._outages = Outages()

    def __len__(self) -> int:
        # What is only to be forgotten counts if it is all: nobody else would come to do it.
        held = len(self._new) + len(self._wheel) + len(self._due) + len(self._batches)
        return held or len(self._gone)

    def keep(self, tracked: TrackedLease) -> None:
        """Look after a lease from now on, or anew if its end was moved; from any thread."""
        claim = tracked.claim
        when = claim.since + tracked.options.first_look
        if claim.duration < tracked.options.lease:  # it is shorter than it will be
            when = tracked.first_look()
        tracked.kept = True
        self._new.add(tracked)
        # An alarm that should have rung before was interrupted when it was set.
        if not claim.since <= self._wakes_at <= when:
            self._lease_loop.call(partial(self._wake_at, when))
        if tracked.options.auto_renew and tracked.is_far(self._lease_loop.now()):
            self._lease_loop.call(lambda: self._lease_loop.start(self._prepare(tracked)))

    def drop(self, tracked: TrackedLease) -> None:
        """Leave a lease alone that is about to be released; from any thread."""
        tracked.kept = False
        self._new.discard(tracked)
        if tracked.due > -math.inf:  # it is on the wheel, which the event loop alone touches
            self._gone.add(tracked)
            if len(self._gone) >= MOST_GONE or self._wakes_at == math.inf:
                with suppress(RuntimeError):  # the event loop does not run: nothing rings either
                    self._lease_loop.call(partial(self._wake_at, self._lease_loop.now()))

    def mute(self) -> None:
        """Know that the bell was taken away and rings no more until it is asked to again."""
        self._wakes_at = math.inf

    def tick(self) -> None:
        """Do what is due, and have the bell ring for the rest.

        What one lease raises is logged and keeps nothing from the others. After a KeyboardInterrupt
        or SystemExit the next tick goes on where this one ended.
        """
        due, batches = self._due, self._batches
        try:
            self._absorb()
            now = self._lease_loop.now()
            self._wheel.take(now, due)
            while due:
                self._look(due[-1], now)
                due.pop()
            while batches:
                self._send(next(iter(batches.values())))
                del batches[next(iter(batches))]
        finally:
            self._arm()

    def _wake_at(self, when: float) -> None:
        """Have the bell ring by this time."""
        self._lease_loop.wake_at(when)
        if not self._lease_loop.now() <= self._wakes_at <= when:
            self._wakes_at = when

    def _arm(self) -> None:
        """Have the bell ring for what is next; only here is the alarm put off."""
        self._wakes_at = self._next()
        while self._absorb():  # who handed in before that trusted that this bell rings earlier
            self._wakes_at = self._next()
        self._lease_loop.wake_at(self._wakes_at)

    def _next(self) -> float:
        """When something is to be done next."""
        when = self._wheel.next()
        if self._due or self._batches:  # a tick was cut short
            return min(when, self._lease_loop.now() + CUT)
        return when

    def _absorb(self) -> bool:
        """Take in what was handed in and taken back; whether anything was handed in."""
        while (tracked := popped(self._gone)) is not None:
            if not tracked.kept:
                self._take_off(tracked)
        came = list(self._new)
        self._due += came
        self._new.difference_update(came)
        for tracked in reversed(came):
            with Alone(tracked, self._put_soon):
                self._put(tracked, *tracked.next_look())
            self._due.pop()
        return bool(came)

    def _look(self, tracked: TrackedLease, now: float) -> None:
        """Do what is due, or add it to the leases that its client renews now."""
        end = tracked.claim.deadline
        with Alone(tracked, self._put_soon):
            if tracked.is_over():
                self._take_off(tracked)
            elif tracked.untold:
                self._tell(tracked)
            elif now >= end - EARLY:
                self._lose(tracked, tracked.why_over())
            elif tracked.is_due(now):
                self._put(tracked, end, EARLY)  # told lost in time though a renewal hangs
                batch = self._batches.setdefault(id(tracked.port.client), [])
                batch.append(tracked)
                tracked.batch = batch
            else:
                self._put(tracked, *tracked.next_look())

    def _send(self, batch: list[TrackedLease]) -> None:
        """Renew leases of one client in the background."""
        work = self._renew(batch)
        try:
            self._lease_loop.start(work, lambda: self._land(batch))
        except BaseException as error:
            work.close()
            self._land(batch)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            note(batch[0], error)

    def _land(self, batch: list[TrackedLease]) -> None:
        """Renew once more what a trip that is over, perhaps cut short, leaves unknown."""
        for tracked in batch:
            if tracked.batch is batch:
                self._put_soon(tracked)
                tracked.batch = None  # last: what is cut short here is called once more

    async def _prepare(self, tracked: TrackedLease) -> None:
        """Have a connection, and the script on the server, before the first renewal is due."""
        port, script = self._lease_loop.port(tracked.port), _lua.script("renew")
        if isinstance(port, type(tracked.port)):  # over the same connection, which was just used
            return
        request = ("EVAL", script.text, 0, "", next(port.serials))
        try:
            await port.send(*request, until=tracked.claim.deadline)
        except Exception as error:
            log.debug("no connection for renewals yet: %s: %s", type(error).__name__, error)

    async def _renew(self, batch: list[TrackedLease]) -> None:
        sent = self._lease_loop.now()
        timely = [tracked for tracked in batch if tracked.claim.deadline > sent]
        ends = min([tracked.claim.deadline for tracked in timely], default=sent)
        # Half of what is left, so that there is time for another try on another connection.
        renewals = [tracked.renewal(sent) for tracked in timely]
        outcomes: Sequence[Outcome]
        try:
            port = self._lease_loop.port(batch[0].port)
        except Exception as error:  # a part of the client is not there in the background
            outcomes = [error] * len(renewals)
        else:
            note_asked(timely, sent)
            outcomes = await renew(port, renewals, sent + (ends - sent) / 2)
        for tracked, renewal, outcome in zip(timely, renewals, outcomes, strict=True):
            with Alone(tracked, self._put_soon):
                tracked.batch = None
                if not tracked.is_over() and not tracked.untold:
                    self._conclude(tracked, renewal, outcome, sent)
            if tracked.is_over():
                self._take_off(tracked)

    def _conclude(
        self, tracked: TrackedLease, renewal: Renewal, outcome: Outcome, sent: float
    ) -> None:
        claim, now = tracked.claim, self._lease_loop.now()
        if isinstance(outcome, Refusal):
            claim.lost_holder = outcome.holder
            self._lose(tracked, why_refused(claim, outcome, now))
            return
        if outcome is not None:
            self._outages.note(tracked, outcome, sent, now)
        if now >= claim.deadline:  # known too late: somebody may have seen that it is lost
            self._lose(tracked, tracked.why_over())
        elif outcome is None:
            claim.prolong(sent, renewal.seconds)
            self._outages.end(tracked, now)
            tracked.pauses, tracked.is_short = None, False
            self._put(tracked, *tracked.next_look())
        else:
            tracked.pauses = tracked.pauses or delays.recovering(self._lease_loop.random)
            self._put(tracked, min(now + next(tracked.pauses), claim.deadline), EARLY)

    def _lose(self, tracked: TrackedLease, why: str) -> None:
        tracked.untold = tracked.untold or MOST_TELLS
        tracked.claim.lost_reason = why
        self._tell(tracked)

    def _tell(self, tracked: TrackedLease) -> None:
        """Tell its holder that a lease is lost; it is looked after until that has succeeded."""
        tracked.untold -= 1
        forget(tracked.port, tracked.claim)
        lease = tracked.lease()
        if lease is not None:
            tracked.notify(lease)
        tracked.untold = 0
        self._take_off(tracked)

    def _put_soon(self, tracked: TrackedLease) -> None:
        """Look again, after what was begun for a lease was cut short."""
        if not tracked.is_over():
            tracked.pauses = tracked.pauses or delays.recovering(self._lease_loop.random)
            when = self._lease_loop.now() + max(CUT, next(tracked.pauses))
            if not tracked.untold:
                when = min(when, tracked.claim.deadline)
            self._put(tracked, when, EARLY)

    def _put(self, tracked: TrackedLease, when: float, grain: float) -> None:
        """Put a lease on the wheel, or elsewhere on it, unless it was taken back."""
        before = tracked.due
        tracked.due = self._wheel.put(
            tracked, *lease_times.look(self._lease_loop.now(), when, grain)
        )
        if before != tracked.due:
            self._wheel.drop(tracked, before)
        if not tracked.kept:  # either who takes it back sees that it is there, or it is seen here
            self._wheel.drop(tracked, tracked.due)
        elif tracked.due < self._wakes_at:
            self._lease_loop.wake_at(tracked.due)
            self._wakes_at = tracked.due

    def _take_off(self, tracked: TrackedLease) -> None:
        """Have a lease on the wheel no more."""
        self._wheel.drop(tracked, tracked.due)
        tracked.due = -math.inf
        self._gone.discard(tracked)
        self._outages.leave(tracked)
