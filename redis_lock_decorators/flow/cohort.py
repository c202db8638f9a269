"""Waiters of one process that share a place in the queue and pass the lock on without Redis.

While none of them holds the lock, one, the leader, competes for it with other processes. Who holds
it passes it on to the others here, in their order and a bounded number of times; then it goes to
the queue again. Nobody asks Redis meanwhile: who
passes a lock on is not told that it was lost before, so that is bounded by a time too, and the
next to let it go is told. After Dice, Marathe, Shavit: Lock Cohorting (2012), who pass on 64
times too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import Refusal
from redis_lock_decorators.flow.turn import News, Waiter

#: How often, and for how many seconds, a lease is passed on before Redis is asked whether it is
#: there still, and other processes have their turn.
MOST_PASSES, MOST_SECONDS = 64, 0.25
#: The same as a part of its length, if that is less: as often as it is renewed.
MOST_OF_LEASE = 1 / 3
#: The part of a grant that must be left of a lease to pass it on.
ENOUGH = 0.3
#: Seconds after which a waiter looks by itself whether somebody leads.
LOOK = 0.25
#: The place of the one leader.
LEADER = "leader"
#: The place of what becomes of a waiter: what it is given, or None.
FATE = "fate"


class Gift(NamedTuple):
    """A held lock that is passed on; the names are those of a claim."""

    identifier: str
    since: float
    deadline: float
    lasts: float
    passes: int
    has_queued: bool


class Local:
    """One waiter of a cohort: it is given the lock, or goes without, whichever comes first.

    That is decided in one operation, so that neither another thread nor an exception from outside
    can come between: whoever is given the lock has it, though neither of the two knows yet.
    """

    __slots__ = ("_fate", "claim", "waiter")

    def __init__(self, claim: Claim, waiter: Waiter) -> None:
        self.claim = claim
        self.waiter = waiter
        self._fate: dict[str, Gift | None] = {}

    @property
    def gift(self) -> Gift | None:
        """What it was given, if it was."""
        return self._fate.get(FATE)

    @property
    def is_gone(self) -> bool:
        """Whether it waits no more, and was given nothing."""
        return FATE in self._fate and self._fate[FATE] is None

    def give(self, gift: Gift) -> bool:
        """Have it hold the lock; False if it is gone."""
        return self._fate.setdefault(FATE, gift) is gift

    def go(self) -> None:
        """Be given nothing any more."""
        self._fate.setdefault(FATE, None)


class Cohort:
    """The waiters of one process (or event loop) for one lock and one length of lease.

    Without a lock of its own: every step is one operation that cannot be interrupted.

    Attributes:
        holder: whose claim held the lock last.
        since: when the lock came from Redis, or word of it.
    """

    __slots__ = ("_leader", "_waiting", "holder", "since")

    def __init__(self) -> None:
        self.holder: Claim | None = None
        self.since = 0.0
        self._leader: dict[str, Local] = {}
        self._waiting: deque[Local] = deque()

    def is_idle(self) -> bool:
        """Whether nobody is in it."""
        return not self._leader and not self._waiting

    def lead(self, local: Local, now: float) -> bool:
        """Become the leader, if it stands first, and nobody leads or holds the lock here."""
        if self._is_held(now) or self._is_led() or self._first() is not local:
            return False
        return self._leader.setdefault(LEADER, local) is local

    def step_down(self, local: Local, now: float) -> None:
        """Lead no more."""
        if self._leader.get(LEADER) is local:
            del self._leader[LEADER]
        self.stir(now)

    def stir(self, now: float) -> None:
        """Have the first who waits lead, if somebody must."""
        if not self._is_held(now) and not self._is_led() and (first := self._first()) is not None:
            first.waiter.tell(News.AGAIN)

    def stand(self, local: Local) -> None:
        """Wait behind the others."""
        if local not in self._waiting:
            self._waiting.append(local)

    def go(self, local: Local) -> bool:
        """Wait no more; False if the lock was passed to it."""
        local.go()
        if local in self._waiting:
            with suppress(ValueError):  # it was taken away this moment
                self._waiting.remove(local)
        return local.is_gone

    def next(self) -> Local | None:
        """Take away the first who waits."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _first(self) -> Local | None:
        try:
            while (first := self._waiting[0]).claim.ended:  # it was interrupted when it left
                self.go(first)
        except IndexError:
            return None
        return first

    def _is_led(self) -> bool:
        leader = self._leader.get(LEADER)
        if leader is not None and leader.claim.ended:  # it was interrupted when it stepped down
            self._leader.pop(LEADER, None)
            return False
        return leader is not None

    def _is_held(self, now: float) -> bool:
        holder = self.holder
        if holder is None:
            return False
        gift = None if holder.local is None else holder.local.gift
        return holder.is_live(now) or (gift is not None and now < gift.deadline)


async def acquire(
    port: Port,
    claim: Claim,
    compete: Callable[[], Awaitable[Refusal | None]],
    stop: float,
) -> Refusal | None:
    """Be passed the lock here, or lead and ``compete`` for it. None: it is held."""
    claim.cohort = cohort = port.cohort(claim.keys[0], claim.ttl)
    while True:
        refusal = await _wait(port, claim, cohort, compete, stop)
        if refusal is not None or port.now() < claim.deadline:
            return refusal
        claim.identify()  # it was passed the lock, but woke when its lease was over


def pass_on(port: Port, claim: Claim) -> bool:
    """Pass a held lock to the next one here, if it may be and there is one, or was before."""
    settle(claim)  # it may have been interrupted at it
    if not claim.identifier:
        return True
    cohort, now = claim.cohort, port.now()
    if cohort is None or not _may_be_passed(claim, cohort.since, now):
        return False
    gift = _gift_of(claim, now)
    while (heir := cohort.next()) is not None:
        if heir.is_gone or heir.claim.ended:
            continue
        if gift.has_queued:  # word that it is our turn may still be on the way
            port.listener(claim.keys[0]).enter(gift.identifier, heir.claim)
        claim.heir = heir
        if heir.give(gift):
            cohort.holder = heir.claim
            settle(claim)
            heir.waiter.tell(News.TURN)
            return True
        if gift.has_queued:
            port.listener(claim.keys[0]).enter(gift.identifier, claim)
    return False


def settle(claim: Claim) -> None:
    """Hold what the claim was given, and be without what it gave away; wait for nothing more."""
    local, heir = claim.local, claim.heir
    if local is not None:
        local.go()
        if (gift := local.gift) is not None:
            claim.since, claim.deadline, claim.lasts = gift.since, gift.deadline, gift.lasts
            claim.passes, claim.has_queued = gift.passes, gift.has_queued
            claim.identifier, claim.local = gift.identifier, None
    if heir is not None and (gift := heir.gift) is not None and gift.identifier == claim.identifier:
        claim.identifier, claim.leaving, claim.heir = "", True, None


def _gift_of(claim: Claim, now: float) -> Gift:
    end, passes = claim.deadline, claim.passes + 1
    return Gift(claim.identifier, now, end, end - now, passes, claim.has_queued)


async def _wait(
    port: Port,
    claim: Claim,
    cohort: Cohort,
    compete: Callable[[], Awaitable[Refusal | None]],
    stop: float,
) -> Refusal | None:
    local = claim.local = Local(claim, port.waiter())
    try:
        while local.gift is None:
            cohort.stand(local)
            if cohort.lead(local, port.now()):
                if not cohort.go(local):
                    continue
                refusal = await compete()
                if refusal is None:
                    cohort.holder, cohort.since = claim, port.now()
                return refusal
            left = stop - port.now()
            if left <= 0 and cohort.go(local):
                return Refusal(None)
            await local.waiter.wait(max(0.0, min(left, LOOK)))
        return None
    finally:
        cohort.go(local)
        settle(claim)
        cohort.step_down(local, port.now())


def _may_be_passed(claim: Claim, since: float, now: float) -> bool:
    """Whether another here may have the lock, which came ``since``, before Redis is asked."""
    if not claim.is_live(now) or claim.rest > now:
        return False
    longest = min(MOST_SECONDS, MOST_OF_LEASE * claim.ttl / 1000)
    if claim.passes >= MOST_PASSES or now >= since + longest:
        return False
    return claim.deadline - now >= ENOUGH * claim.grant / 1000
