"""Waiters of one process that share a queue entry and hand the lock to each other without Redis.

While none of them holds the lock, one of them, the leader, competes for it with other processes.
The holder hands it to the next waiter of its process, in order of arrival. Redis is not asked, so a
lease that was lost in the meantime goes unnoticed. Therefore the number of hand-offs and their time
are limited. The last holder releases the lock to the queue; a loss is reported to that one.
After Dice, Marathe, Shavit: Lock Cohorting (2012).
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice, takewhile

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED, HANDED_OFF
from redis_lock_decorators._flow.hand_off_decision import HandOff
from redis_lock_decorators._flow.membership import HandedLock
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter, WaitingOwners
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._rules.interruptions import CHANGED, is_from_python

#: Hand-offs of one lease, and seconds that they may take, before other processes have their turn.
MOST_HAND_OFFS, MOST_SECONDS = 64, 0.25
#: More hand-offs are allowed within the first ``EARLY_SECONDS``: that delays other processes no
#: longer than one usual hold would.
MOST_EARLY, EARLY_SECONDS = 256, 0.02
#: The time limit as a part of the lease, if that is less than ``MOST_SECONDS``. Leases are renewed
#: after the same part, so a loss is noticed no later than without cohorts.
MOST_OF_LEASE = 1 / 3
#: The part of a grant that must remain of the lease to hand it off.
LEAST_SHARE = 0.3
#: This many waiters at the head recheck often.
RECHECKING = 4
#: The key of the leader.
LEADER = "leader"


class Cohort:
    """The waiters of one process (or event loop) for one lock and one length of lease.

    It has no lock: every step is one operation that cannot be interrupted.

    Attributes:
        holder: the claim that held the lock last.
        since: when the lock was acquired from Redis.
        owners: the waiters by their thread or task.
    """

    __slots__ = ("_leader", "_waiting", "holder", "owners", "since")

    def __init__(self) -> None:
        self.holder: Claim | None = None  #: any thread; written by the holder
        self.since = 0.0  #: any thread; written by the leader that acquired the lock
        self.owners = WaitingOwners()
        self._leader: dict[str, CohortWaiter] = {}  #: any thread
        # Not a dict: finding its first key takes longer the more keys before it were deleted.
        self._waiting: OrderedDict[CohortWaiter, None] = OrderedDict()  #: any thread

    def is_idle(self) -> bool:
        """Whether it has neither a leader nor waiters."""
        return not self._leader and not self._waiting

    def is_held(self, now: float) -> bool:
        """Whether one of its waiters holds the lock, or was handed it."""
        holder = self.holder
        if holder is None:
            return False
        waiter = holder.cohort_waiter  # read first: its claim takes over what was handed
        if holder.is_live(now):
            return holder.has_lease()  # without one it is not renewed, so no loss is noticed
        return (
            waiter is not None
            and (handed_lock := waiter.handed_lock) is not None
            and now < handed_lock.deadline
        )

    def refusal(self, now: float) -> Refusal:
        """That one of its waiters holds the lock, as far as is known."""
        holder = self.holder
        if holder is None or not holder.identifier:
            return Refusal(None)
        return Refusal(holder.identifier, max(0.0, holder.deadline - now))

    def lead(self, waiter: CohortWaiter, now: float) -> bool:
        """Become the leader, if there is none, no holder, and the waiter is the first."""
        if self.is_held(now) or self._is_led(now) or self.first(now) is not waiter:
            return False
        return self._leader.setdefault(LEADER, waiter) is waiter

    def stop_leading(self, waiter: CohortWaiter, now: float) -> None:
        """Give up leadership; wake the next leader unless the waiter holds the lock."""
        if self._leader:
            self._remove_leader(waiter)
        if (handed_lock := waiter.handed_lock) is None or handed_lock.deadline <= now:
            self.wake_next(now)

    def wake_next(self, now: float) -> None:
        """Wake the first waiter, if it is to lead."""
        if self.is_held(now) or self._is_led(now):
            return
        self.wake_silent(now)
        first = self.first(now)
        if first is not None:
            first.wakeup.notify(Signal.RETRY)

    def wake_silent(self, now: float) -> None:
        """Wake the silent waiters at the head: their timers may be lost."""
        try:
            silent = list(takewhile(lambda waiter: waiter.is_silent(now), self._waiting))
        except RuntimeError:  # another thread changed the order during the iteration
            return
        for waiter in silent:
            waiter.wakeup.notify(Signal.RETRY)

    def add(self, waiter: CohortWaiter) -> None:
        """Wait behind the others, unless it waits already."""
        self._waiting.setdefault(waiter)

    def is_near(self, waiter: CohortWaiter) -> bool:
        """Whether it is one of the first."""
        try:
            return waiter in islice(self._waiting, RECHECKING)
        except RuntimeError as error:
            if not is_from_python(error, CHANGED):
                raise
            return True  # another thread changed the order during the iteration

    def withdraw(self, waiter: CohortWaiter) -> bool:
        """Stop waiting; False if the waiter was handed the lock before."""
        self._waiting.pop(waiter, None)
        return waiter.withdraw() is None

    def hand_off(self, claim: Claim, now: float) -> bool:
        """Hand the claim's lock to the next waiter; False if there is none or it must not.

        The waiter is removed after it was handed the lock: if an exception comes before, it waits.
        """
        hand_off_decision = claim.hand_off_decision
        if hand_off_decision is None or not _may_hand_off(claim, self.since, now):
            return False
        handed_lock = _handed_lock_of(claim, now)
        while (member := self.first(now)) is not None:
            decided = hand_off_decision.decide(claim, HandOff(member, handed_lock))
            if decided is None:  # other code releases the keys
                return False
            if decided.hand(claim):
                _complete(claim, decided)
                return True
            self._waiting.pop(member, None)
        self.wake_silent(now)
        return False

    def may_hand_off_at(self, now: float) -> bool:
        """Whether the lock that it holds may be handed off at ``now`` or later."""
        return now < self.since + MOST_SECONDS

    def note_holder(self, giver: Claim, member: CohortWaiter) -> None:
        """Record that a waiter was handed the lock, unless it has handed it off already."""
        self._waiting.pop(member, None)
        if self.holder is giver:
            self.holder = member.claim

    def first(self, now: float) -> CohortWaiter | None:
        """The first waiter that makes progress. Removes those whose exit was interrupted."""
        while True:
            try:
                for first in self._waiting:
                    if first.claim.state is ENDED or not first.is_silent(now):
                        break
                else:
                    return None
            except RuntimeError as error:
                if not is_from_python(error, CHANGED):
                    raise
                continue  # another thread changed the order during the iteration
            if first.claim.state is not ENDED:
                return first
            self.withdraw(first)

    def _is_led(self, now: float) -> bool:
        leader = self._leader.get(LEADER)
        if leader is None:
            return False
        if leader.claim.state is ENDED or leader.is_silent(now):  # ended: its exit was interrupted
            self._remove_leader(leader)
            return False
        return True

    def _remove_leader(self, leader: CohortWaiter) -> None:
        """Remove the leader, if it is this one. Should two lead for a while, Redis decides."""
        if self._leader.get(LEADER) is leader:
            self._leader.pop(LEADER, None)


def hand_off(port: Port, claim: Claim) -> bool:
    """Hand a held lock off within its cohort; True also if an interrupted call has done so."""
    complete_hand_offs(claim)
    if not claim.identifier:
        return True
    return claim.cohort is not None and claim.cohort.hand_off(claim, port.now())


def is_handed_off(claim: Claim) -> bool:
    """Decide to release the claim's keys; True if its lock is handed off instead."""
    decided = (
        None if claim.hand_off_decision is None else claim.hand_off_decision.decide(claim, None)
    )
    if decided is None:
        return False
    _complete(claim, decided)
    return True


def complete_hand_offs(claim: Claim) -> None:
    """Complete hand-offs to and from the claim; it accepts none from now on."""
    waiter, hand_off_decision = claim.cohort_waiter, claim.hand_off_decision
    if waiter is not None and (handed_lock := waiter.withdraw()) is not None:
        claim.since, claim.deadline = handed_lock.since, handed_lock.deadline
        claim.duration, claim.hand_offs = handed_lock.duration, handed_lock.hand_offs
        claim.has_queued, claim.queue_record = handed_lock.has_queued, handed_lock.queue_record
        claim.identifier, claim.cohort_waiter = handed_lock.identifier, None
    if (
        claim.identifier
        and hand_off_decision is not None
        and (decided := hand_off_decision.handed_off()) is not None
    ):
        _complete(claim, decided)


def _complete(claim: Claim, hand_off: HandOff) -> None:
    """Record that a claim's lock is handed off, and wake the waiter.

    Other code may do the same at this time.
    """
    member, cohort = hand_off.member, claim.cohort
    if cohort is not None:
        cohort.note_holder(claim, member)
    claim.identifier, claim.queue_record = "", None
    if claim.state is ACTIVE:
        claim.state = HANDED_OFF
    member.wakeup.notify(Signal.GRANTED)


def _handed_lock_of(claim: Claim, now: float) -> HandedLock:
    end, hand_offs = claim.deadline, claim.hand_offs + 1
    queued, record = claim.has_queued, claim.queue_record
    return HandedLock(claim.identifier, now, end, end - now, hand_offs, queued, record)


def _may_hand_off(claim: Claim, since: float, now: float) -> bool:
    """Whether a lock that was acquired ``since`` may be handed off before Redis is asked."""
    if not claim.is_live(now) or claim.held_until > now:
        return False
    longest = min(MOST_SECONDS, MOST_OF_LEASE * claim.expire_ms / 1000)
    most = MOST_EARLY if now < since + EARLY_SECONDS else MOST_HAND_OFFS
    if claim.hand_offs >= most or now >= since + longest:
        return False
    # An extended lease may last longer than the next member asked for.
    return LEAST_SHARE * claim.grant_ms <= (claim.deadline - now) * 1000 <= claim.expire_ms
