"""Keeping leases alive while their holders work, and telling who lost one."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from redis_lock_decorators import lua
from redis_lock_decorators.flow.logs import log
from redis_lock_decorators.flow.loop import Loop
from redis_lock_decorators.flow.outages import Outages, note_asked
from redis_lock_decorators.flow.release import forget, why_refused
from redis_lock_decorators.flow.renew import Outcome, Renewal, renew
from redis_lock_decorators.flow.requests import Refusal
from redis_lock_decorators.flow.watch import EARLY, Alone, Watch, note, popped
from redis_lock_decorators.rules import delays, term
from redis_lock_decorators.rules.wheel import Wheel

__all__ = ["Bell", "Keeper", "Watch"]


#: So many leases taken back are left on the wheel until the next look.
MOST_GONE = 256
#: The least pause, in seconds, before what was cut short is begun again.
CUT = 0.02


class Bell(Loop, Protocol):
    """What a keeper needs of the event loop that it works on.

    Attributes:
        phase: where in time the loop rounds from.
    """

    phase: float

    def ring(self, when: float) -> None:
        """Call the keeper's ``tick`` by this time. Infinity: for nothing."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""


class Keeper:
    """Looks after the leases of one event loop, or of all threads of a process.

    Every rule of it is in ``tick`` and what that calls; it runs on the event loop alone. Other
    threads only hand leases in and take them back, without a lock: an exception may come between
    any two lines.

    Only the event loop sets its alarm and writes down when that rings. Another thread first hands
    in, then reads that time, and asks for an earlier alarm if it is too late; the event loop, after
    putting the alarm off, looks once more at what was handed in. So either the thread sees the new
    time or the event loop sees what the thread handed in.
    """

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._new: set[Watch] = set()
        self._gone: set[Watch] = set()
        self._wheel: Wheel[Watch] = Wheel(bell.phase)
        self._rings_at = math.inf
        self._outages = Outages()

    def __len__(self) -> int:
        # What is only to be forgotten counts if it is all: nobody else would come to do it.
        return len(self._new) + len(self._wheel) or len(self._gone)

    def keep(self, watch: Watch) -> None:
        """Look after a lease from now on, or anew if its end was moved; from any thread."""
        claim = watch.claim
        when = claim.since + watch.options.first_look
        if claim.lasts < watch.options.lease:  # it is shorter than it will be
            due, grain = watch.next_look()
            when = due - grain
        watch.kept = True
        self._new.add(watch)
        # An alarm that should have rung before was interrupted when it was set.
        if not claim.since <= self._rings_at <= when:
            self._bell.call(partial(self._ring, when))
        if watch.options.auto_renew and watch.is_far(self._bell.now()):
            self._bell.call(lambda: self._bell.start(self._prepare(watch)))

    def drop(self, watch: Watch) -> None:
        """Leave a lease alone that is about to be released; from any thread."""
        watch.kept = False
        self._new.discard(watch)
        if watch.due > -math.inf:  # it is on the wheel, which the event loop alone touches
            self._gone.add(watch)
            if len(self._gone) >= MOST_GONE or self._rings_at == math.inf:
                with suppress(RuntimeError):  # the event loop does not run: nothing rings either
                    self._bell.call(partial(self._ring, self._bell.now()))

    def mute(self) -> None:
        """Know that the bell was taken away and rings no more until it is asked to again."""
        self._rings_at = math.inf

    def tick(self) -> None:
        """Do what is due, and have the bell ring for the rest.

        What one lease raises is logged and keeps nothing from the others. After a KeyboardInterrupt
        or SystemExit the next tick goes on where this one ended.
        """
        due: list[Watch] = []
        trips: dict[int, list[Watch]] = {}
        try:
            self._absorb()
            now = self._bell.now()
            due += self._wheel.take(now)
            while due:
                self._look(due[-1], now, trips)
                due.pop()
            while trips:
                self._send(next(iter(trips.values())))
                del trips[next(iter(trips))]
        finally:
            self._new.update(due, *trips.values())
            self._arm()

    def _ring(self, when: float) -> None:
        """Have the bell ring by this time."""
        self._bell.ring(when)
        if not self._bell.now() <= self._rings_at <= when:
            self._rings_at = when

    def _arm(self) -> None:
        """Have the bell ring for what is next; only here is the alarm put off."""
        self._rings_at = self._wheel.next()
        while self._absorb():  # who handed in before that trusted that this bell rings earlier
            self._rings_at = self._wheel.next()
        self._bell.ring(self._rings_at)

    def _absorb(self) -> bool:
        """Take in what was handed in and taken back; whether anything was handed in."""
        while (watch := popped(self._gone)) is not None:
            if not watch.kept:
                self._take_off(watch)
        came = False
        while (watch := popped(self._new)) is not None:
            came = True
            with Alone(watch, self._put_soon):
                self._put(watch, *watch.next_look())
        return came

    def _look(self, watch: Watch, now: float, trips: dict[int, list[Watch]]) -> None:
        """Do what is due, or add it to the leases that its client renews now."""
        end = watch.claim.deadline
        with Alone(watch, self._put_soon):
            if watch.is_over():
                self._take_off(watch)
            elif now >= end - EARLY:
                self._lose(watch, watch.why_over())
            elif watch.is_due(now):
                self._put(watch, end, EARLY)  # told lost in time though a renewal hangs
                trips.setdefault(id(watch.port.client), []).append(watch)
            else:
                self._put(watch, *watch.next_look())

    def _send(self, trip: list[Watch]) -> None:
        """Renew leases of one client in the background."""
        for watch in trip:
            watch.trip = trip
        work = self._renew(trip)
        try:
            self._bell.start(work, lambda: self._land(trip))
        except BaseException as error:
            work.close()
            self._land(trip)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            note(trip[0], error)

    def _land(self, trip: list[Watch]) -> None:
        """Renew once more what a trip that is over, perhaps cut short, leaves unknown."""
        for watch in trip:
            if watch.trip is trip:
                watch.trip = None
                self._put_soon(watch)

    async def _prepare(self, watch: Watch) -> None:
        """Have a connection, and the script on the server, before the first renewal is due."""
        port, script = self._bell.port(watch.port), lua.script("renew")
        if isinstance(port, type(watch.port)):  # over the same connection, which was just used
            return
        request = ("EVAL", script.text, 0, "", next(port.serials))
        try:
            await port.send(*request, until=watch.claim.deadline)
        except Exception as error:
            log.debug("no connection for renewals yet: %s: %s", type(error).__name__, error)

    async def _renew(self, trip: list[Watch]) -> None:
        port, sent = self._bell.port(trip[0].port), self._bell.now()
        timely = [watch for watch in trip if watch.claim.deadline > sent]
        ends = min([watch.claim.deadline for watch in timely], default=sent)
        # Half of what is left, so that there is time for another try on another connection.
        renewals = [watch.renewal(sent) for watch in timely]
        note_asked(timely, sent)
        outcomes = await renew(port, renewals, sent + (ends - sent) / 2)
        for watch, renewal, outcome in zip(timely, renewals, outcomes, strict=True):
            watch.trip = None
            with Alone(watch, self._put_soon):
                if not watch.is_over():
                    self._conclude(watch, renewal, outcome, sent)
            if watch.is_over():
                self._take_off(watch)

    def _conclude(self, watch: Watch, renewal: Renewal, outcome: Outcome, sent: float) -> None:
        claim, now = watch.claim, self._bell.now()
        if isinstance(outcome, Refusal):
            self._lose(watch, why_refused(claim, outcome, now))
            return
        if outcome is not None:
            self._outages.note(watch, outcome, sent, now)
        if now >= claim.deadline:  # known too late: somebody may have seen that it is lost
            self._lose(watch, watch.why_over())
        elif outcome is None:
            claim.prolong(sent, renewal.seconds)
            self._outages.end(watch, now)
            watch.pauses, watch.is_short = None, False
            self._put(watch, *watch.next_look())
        else:
            watch.pauses = watch.pauses or delays.recovering(self._bell.random)
            self._put(watch, min(now + next(watch.pauses), claim.deadline), EARLY)

    def _lose(self, watch: Watch, why: str) -> None:
        watch.claim.lost_to = why
        self._take_off(watch)
        forget(watch.port, watch.claim)
        lease = watch.lease()
        if lease is not None:
            watch.tell(lease)

    def _put_soon(self, watch: Watch) -> None:
        """Look again, after what was begun for a lease was cut short."""
        if not watch.is_over():
            watch.pauses = watch.pauses or delays.recovering(self._bell.random)
            pause = max(CUT, next(watch.pauses))
            self._put(watch, min(self._bell.now() + pause, watch.claim.deadline), EARLY)

    def _put(self, watch: Watch, when: float, grain: float) -> None:
        """Put a lease on the wheel, or elsewhere on it, unless it was taken back."""
        self._wheel.drop(watch, watch.due)
        watch.due = self._wheel.put(watch, *term.look(self._bell.now(), when, grain))
        if not watch.kept:  # either who takes it back sees that it is there, or it is seen here
            self._wheel.drop(watch, watch.due)
        elif watch.due < self._rings_at:
            self._bell.ring(watch.due)
            self._rings_at = watch.due

    def _take_off(self, watch: Watch) -> None:
        """Have a lease on the wheel no more."""
        self._wheel.drop(watch, watch.due)
        watch.due = -math.inf
        self._gone.discard(watch)
        self._outages.leave(watch)
