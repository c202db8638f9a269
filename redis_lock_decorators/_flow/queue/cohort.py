"""Waiters of one process that share a place in the queue and pass the lock on without Redis.

While none of them holds the lock, one, the leader, competes for it with other processes. Who holds
it passes it on to the others here, in their order and a bounded number of times; then it goes to
the queue again. Nobody asks Redis meanwhile: who passes a lock on is not told that it was lost
before, so that is bounded by a time too, and the next to let it go is told. After Dice, Marathe,
Shavit: Lock Cohorting (2012).
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice, takewhile

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort_member import Handover, Local, Owners
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._rules.interruptions import CHANGED, is_from_python

#: How often, and for how many seconds, a lease is passed on before Redis is asked whether it is
#: there still, and other processes have their turn.
MOST_HAND_OFFS, MOST_SECONDS = 64, 0.25
#: How often, if that takes so few seconds: others wait no longer for that than for one hold.
MOST_QUICK, QUICK = 256, 0.02
#: The same as a part of its length, if that is less: as often as it is renewed.
MOST_OF_LEASE = 1 / 3
#: The part of a grant that must be left of a lease to pass it on.
ENOUGH = 0.3
#: So many who stand first look often.
FEW = 4
#: The place of the one leader.
LEADER = "leader"


class Cohort:
    """The waiters of one process (or event loop) for one lock and one length of lease.

    Without a lock of its own: every step is one operation that cannot be interrupted.

    Attributes:
        holder: whose claim held the lock last.
        since: when the lock came from Redis, or word of it.
        owners: who waits here on which thread, or in which task.
    """

    __slots__ = ("_leader", "_waiting", "holder", "owners", "since")

    def __init__(self) -> None:
        self.holder: Claim | None = None
        self.since = 0.0
        self.owners = Owners()
        self._leader: dict[str, Local] = {}
        # Not a dict: to find its first takes longer the more were taken away there before.
        self._waiting: OrderedDict[Local, None] = OrderedDict()

    def is_idle(self) -> bool:
        """Whether nobody is in it."""
        return not self._leader and not self._waiting

    def lead(self, local: Local, now: float) -> bool:
        """Become the leader, if it stands first, and nobody leads or holds the lock here."""
        if self._is_held(now) or self._is_led(now) or self._first(now) is not local:
            return False
        return self._leader.setdefault(LEADER, local) is local

    def step_down(self, local: Local, now: float) -> None:
        """Lead no more; while it holds what it was given, nobody else must."""
        if self._leader:
            self._depose(local)
        if (gift := local.gift) is None or gift.deadline <= now:
            self.stir(now)

    def stir(self, now: float) -> None:
        """Have the first who waits lead, if somebody must."""
        if self._is_held(now) or self._is_led(now):
            return
        self.wake_silent(now)
        first = self._first(now)
        if first is not None:
            first.wakeup.notify(Signal.AGAIN)

    def wake_silent(self, now: float) -> None:
        """Have those look by themselves whom nobody waits for: their timers may be lost."""
        try:
            silent = list(takewhile(lambda local: local.is_silent(now), self._waiting))
        except RuntimeError:  # another thread came or left this moment
            return
        for local in silent:
            local.wakeup.notify(Signal.AGAIN)

    def stand(self, local: Local) -> None:
        """Wait behind the others."""
        self._waiting.setdefault(local)

    def is_near(self, local: Local) -> bool:
        """Whether it is one of the first."""
        try:
            return local in islice(self._waiting, FEW)
        except RuntimeError as error:
            if not is_from_python(error, CHANGED):
                raise
            return True  # another thread came or left this moment

    def go(self, local: Local) -> bool:
        """Wait no more; False if the lock was passed to it."""
        self._waiting.pop(local, None)
        return local.go() is None

    def next(self, now: float) -> Local | None:
        """Take away the first who waits."""
        while (first := self._first(now)) is not None:
            if self._waiting.pop(first, first) is None:  # else it was taken away this moment
                return first
        return None

    def _first(self, now: float) -> Local | None:
        """The first who waits and takes steps."""
        while True:
            try:
                for first in self._waiting:
                    if first.claim.ended or not first.is_silent(now):
                        break
                else:
                    return None
            except RuntimeError as error:
                if not is_from_python(error, CHANGED):
                    raise
                continue  # another thread came or left this moment
            if not first.claim.ended:
                return first
            self.go(first)  # it was interrupted when it left

    def _is_led(self, now: float) -> bool:
        leader = self._leader.get(LEADER)
        if leader is None:
            return False
        if leader.claim.ended or leader.is_silent(now):  # or interrupted when it stepped down
            self._depose(leader)
            return False
        return True

    def _depose(self, leader: Local) -> None:
        """Have nobody lead, if that one does; should two lead for a while, Redis decides."""
        if self._leader.get(LEADER) is leader:
            self._leader.pop(LEADER, None)

    def _is_held(self, now: float) -> bool:
        holder = self.holder
        if holder is None:
            return False
        local = holder.cohort_waiter  # read first: settle() moves the gift from there to the claim
        if holder.is_live(now):
            return True
        return local is not None and (gift := local.gift) is not None and now < gift.deadline


def hand_off(port: Port, claim: Claim) -> bool:
    """Pass a held lock to the next one here, if it may be and there is one, or was before."""
    if claim.cohort_waiter is not None or claim.next_member is not None:
        settle(claim)  # it may have been interrupted at it
    if not claim.identifier:
        return True
    cohort, now = claim.cohort, port.now()
    if cohort is None or not _may_be_passed(claim, cohort.since, now):
        return False
    gift = _gift_of(claim, now)
    while (successor := cohort.next(now)) is not None:
        if successor.claim.ended:
            continue
        if gift.queue_record is not None:  # word that it is our turn may still be on the way
            gift.queue_record.pass_to(successor.claim, now)
        claim.next_member = successor
        if successor.give(gift):
            cohort.holder = successor.claim
            claim.identifier, claim.releasing, claim.next_member = "", True, None
            successor.wakeup.notify(Signal.GRANTED)
            return True
        if gift.queue_record is not None:
            gift.queue_record.pass_to(claim, now)
    cohort.wake_silent(now)
    return False


def settle(claim: Claim) -> None:
    """Hold what the claim was given, and be without what it gave away; wait for nothing more."""
    local, successor = claim.cohort_waiter, claim.next_member
    if local is not None and (gift := local.go()) is not None:
        claim.since, claim.deadline, claim.duration = gift.since, gift.deadline, gift.lasts
        claim.hand_offs, claim.has_queued = gift.passes, gift.has_queued
        claim.queue_record = gift.queue_record
        claim.identifier, claim.cohort_waiter = gift.identifier, None
    if (
        successor is not None
        and (gift := successor.gift) is not None
        and gift.identifier == claim.identifier
    ):
        claim.identifier, claim.releasing, claim.next_member = "", True, None


def _gift_of(claim: Claim, now: float) -> Handover:
    end, passes = claim.deadline, claim.hand_offs + 1
    queued, record = claim.has_queued, claim.queue_record
    return Handover(claim.identifier, now, end, end - now, passes, queued, record)


def _may_be_passed(claim: Claim, since: float, now: float) -> bool:
    """Whether another here may have the lock, which came ``since``, before Redis is asked."""
    if not claim.is_live(now) or claim.held_until > now:
        return False
    longest = min(MOST_SECONDS, MOST_OF_LEASE * claim.expire_ms / 1000)
    most = MOST_QUICK if now < since + QUICK else MOST_HAND_OFFS
    if claim.hand_offs >= most or now >= since + longest:
        return False
    return claim.deadline - now >= ENOUGH * claim.grant_ms / 1000
