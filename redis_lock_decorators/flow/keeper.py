"""Keeping leases alive while their holders work, and telling who lost one."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol
from weakref import ref

from redis_lock_decorators import lua
from redis_lock_decorators.errors import shown
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.loop import Loop
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.release import forget, refused
from redis_lock_decorators.flow.renew import Outcome, Renewal, renew
from redis_lock_decorators.flow.requests import Refusal
from redis_lock_decorators.rules import delays, term
from redis_lock_decorators.rules.options import Options
from redis_lock_decorators.rules.wheel import Wheel

log = logging.getLogger("redis_lock_decorators")

#: A loss is told at most so many seconds early, so that many deadlines need few alarms.
EARLY = 0.01


class Manners(NamedTuple):
    """How leases of one kind are treated.

    Attributes:
        is_abandoned: whether the holder of a lease is dead, so that nobody will ever release it.
        tell: tells the holder that its lease is lost; called once.
    """

    is_abandoned: Callable[[Any], bool]
    tell: Callable[[Any], None]


class Bell(Loop, Protocol):
    """What a keeper needs of the event loop that it works on.

    Attributes:
        phase: where in time the loop rounds from.
    """

    phase: float

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""

    def ring(self, when: float) -> None:
        """Call the keeper's ``tick`` by this time; from any thread. Infinity: for nothing."""


class Watch:
    """A lease that is kept. It is not kept alive by that: nobody can release what nobody has.

    Attributes:
        due: when it is looked at next.
        under_way: a renewal was sent and not answered.
        pauses: between the tries of a renewal whose outcome is not known.
    """

    __slots__ = (
        "_last",
        "claim",
        "due",
        "lease",
        "manners",
        "options",
        "pauses",
        "port",
        "under_way",
    )

    def __init__(
        self, lease: object, manners: Manners, claim: Claim, port: Port, options: Options
    ) -> None:
        self.lease = ref(lease)
        self.manners = manners
        self.claim = claim
        self.port = port
        self.due = -math.inf
        self.under_way = False
        self.pauses: Iterator[float] | None = None
        self.options = options
        self._last = math.inf if options.max_hold is None else claim.since + options.max_hold

    def next_look(self) -> tuple[float, float]:
        """When the lease is to be renewed or told lost, and how much earlier it may be done."""
        end, expire = self.claim.deadline, min(self.options.lease, self.claim.lasts)
        if not self.options.auto_renew or term.is_last(end, expire, self._last):
            return end, EARLY
        return term.renewal_due(end, expire), self.options.grain

    def is_due(self, now: float) -> bool:
        """Whether it is time to send a renewal."""
        when, grain = self.next_look()
        return not self.under_way and when < self.claim.deadline and now >= when - grain

    def is_far(self, now: float) -> bool:
        """Whether its server is so far away that a new connection may cost a renewal its time."""
        claim = self.claim
        return term.is_far(now, claim.deadline, claim.lasts) and not self.port.slotted

    def renewal(self, sent: float) -> Renewal:
        """The renewal that leaves at ``sent``."""
        return Renewal(self.claim, min(self.options.lease, self._last - sent))

    def is_over(self) -> bool:
        """Whether there is nothing left to look after."""
        lease = self.lease()
        return self.claim.is_over() or lease is None or self.manners.is_abandoned(lease)

    def why_over(self) -> str:
        """Why the lease ended, where Redis did not say."""
        if term.is_last(self.claim.deadline, self.options.lease, self._last):
            return f"its max_hold of {self.options.max_hold:.3g} s is over"
        return "its time ran out"


class Keeper:
    """Looks after the leases of one event loop, or of all threads of a process.

    Every rule of it is in ``tick`` and what that calls; it runs on the event loop alone. Other
    threads only hand leases in, without a lock: an exception may come between any two lines.
    """

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._new: set[Watch] = set()
        self._wheel: Wheel[Watch] = Wheel(bell.phase)
        self._rings_at = math.inf

    def __len__(self) -> int:
        return len(self._new) + len(self._wheel)

    def keep(self, watch: Watch) -> None:
        """Look after a lease from now on, or anew if its end was moved; from any thread."""
        when = watch.claim.since + watch.options.first_look
        if watch.claim.lasts < watch.options.lease:  # it is shorter than it will be
            when = watch.next_look()[0] - watch.options.grain
        self._new.add(watch)
        if when < self._rings_at:
            self._bell.ring(when)
            self._rings_at = when
        if watch.options.auto_renew and watch.is_far(self._bell.now()):
            self._bell.call(lambda: self._bell.start(self._prepare(watch)))

    def drop(self, watch: Watch) -> None:
        """Leave a lease alone that is about to be released; from any thread."""
        # One that is in the wheel is passed over when its time comes.
        self._new.discard(watch)

    def mute(self) -> None:
        """Know that the bell was taken away and rings no more until it is asked to again."""
        self._rings_at = math.inf

    def tick(self) -> None:
        """Do what is due, and have the bell ring for the rest."""
        now = self._bell.now()
        self._absorb()
        trips: dict[int, list[Watch]] = {}
        for watch in self._wheel.take(now):
            if self._look(watch, now):
                trips.setdefault(id(watch.port.client), []).append(watch)
        for trip in trips.values():
            self._bell.start(self._renew(trip))
        self._rings_at = self._wheel.next()
        while self._absorb():  # what came meanwhile may have trusted that this bell rings earlier
            self._rings_at = self._wheel.next()
        self._bell.ring(self._rings_at)

    def _absorb(self) -> bool:
        """Take in what was handed in; whether that was anything."""
        came = bool(self._new)
        while self._new:
            watch = self._new.pop()
            self._wheel.drop(watch, watch.due)
            watch.due = self._wheel.put(watch, *watch.next_look())
        return came

    def _look(self, watch: Watch, now: float) -> bool:
        """Whether to renew it now; the other things that may be due are done."""
        if watch.is_over():
            return False
        end = watch.claim.deadline
        if now >= end - EARLY:
            self._lose(watch, watch.why_over())
            return False
        renews = watch.is_due(now)
        watch.under_way = watch.under_way or renews
        when, grain = (end, EARLY) if watch.under_way else watch.next_look()
        self._put(watch, when, grain)  # told lost in time though a renewal hangs
        return renews

    async def _prepare(self, watch: Watch) -> None:
        """Have a connection, and the script on the server, before the first renewal is due."""
        port, script = self._bell.port(watch.port), lua.script("renew")
        if port is watch.port:  # it has just been used
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
        outcomes = await renew(port, renewals, sent + (ends - sent) / 2)
        for watch, renewal, outcome in zip(timely, renewals, outcomes, strict=True):
            watch.under_way = False
            self._wheel.drop(watch, watch.due)
            if not watch.claim.is_over():
                self._conclude(watch, renewal, outcome, sent)

    def _conclude(self, watch: Watch, renewal: Renewal, outcome: Outcome, sent: float) -> None:
        claim, now = watch.claim, self._bell.now()
        if isinstance(outcome, Refusal):
            self._lose(watch, refused(outcome))
        elif now >= claim.deadline:  # known too late: somebody may have seen that it is lost
            self._lose(watch, watch.why_over())
        elif outcome is None:
            claim.prolong(sent, renewal.seconds)
            watch.pauses = None
            self._put(watch, *watch.next_look())
        else:
            self._repeat(watch, outcome, now)

    def _repeat(self, watch: Watch, error: Exception, now: float) -> None:
        if watch.pauses is None:
            watch.pauses = delays.recovering(self._bell.random)
            log.info(
                "lock %s could not be renewed yet (%s: %s)",
                *(shown(watch.claim.lock_name), type(error).__name__, error),
            )
        self._put(watch, min(now + next(watch.pauses), watch.claim.deadline), EARLY)

    def _lose(self, watch: Watch, why: str) -> None:
        watch.claim.lost_to = why
        forget(watch.port, watch.claim)
        lease = watch.lease()
        if lease is not None:
            watch.manners.tell(lease)

    def _put(self, watch: Watch, when: float, grain: float) -> None:
        watch.due = self._wheel.put(watch, when, grain)
        if watch.due < self._rings_at:
            self._bell.ring(watch.due)
            self._rings_at = watch.due
