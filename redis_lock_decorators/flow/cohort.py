"""Waiters of one process that share a place in the queue and pass the lock on without Redis.

While none of them holds the lock, one, the leader, competes for it with other processes. Who holds
it passes it on to the others here, in their order and a bounded number of times; then it goes to
the queue again. Nobody asks Redis meanwhile: who passes a lock on is not told that it was lost
before, so that is bounded by a time too, and the next to let it go is told. After Dice, Marathe, Shavit: Lock Cohorting (2012), who pass on 64 times too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

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


class Local:
    """One waiter of a cohort.

    Attributes:
        has_turn: the lock was passed to its claim.
        is_gone: it waits no more, so nothing can be passed to it.
    """

    __slots__ = ("claim", "has_turn", "is_gone", "waiter")

    def __init__(self, claim: Claim, waiter: Waiter) -> None:
        self.claim = claim
        self.waiter = waiter
        self.has_turn = self.is_gone = False


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
        if not local.has_turn:  # without a call before the next line: nothing comes between
            local.is_gone = True
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
        return self.holder is not None and self.holder.is_live(now)


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
    """Pass a held lock to the next one here, if it may be and there is one."""
    cohort, now = claim.cohort, port.now()
    left = claim.deadline - now
    if cohort is None or not _may_be_passed(claim, cohort.since, now):
        return False
    mine, listener = claim.identifier, None
    while (heir := cohort.next()) is not None:
        to = heir.claim
        if claim.has_queued:  # word that it is our turn may still be on the way
            listener = port.listener(to.keys[0])
            listener.enter(mine, to)
        # Without a call until the heir has its turn: nothing comes between, no signal either.
        if not (heir.is_gone or heir.has_turn or to.ended):
            to.since, to.deadline, to.lasts, to.passes = now, claim.deadline, left, claim.passes + 1
            # In one step: from here on this claim is of a lock that nobody holds, and let go.
            to.identifier, claim.identifier, claim.parting, heir.has_turn = mine, "", 1, True
            cohort.holder, to.has_queued = to, claim.has_queued
            heir.waiter.tell(News.TURN)
            return True
    if listener is not None:
        listener.enter(mine, claim)
    return False


async def _wait(
    port: Port,
    claim: Claim,
    cohort: Cohort,
    compete: Callable[[], Awaitable[Refusal | None]],
    stop: float,
) -> Refusal | None:
    local = Local(claim, port.waiter())
    try:
        while not local.has_turn:
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
        cohort.step_down(local, port.now())


def _may_be_passed(claim: Claim, since: float, now: float) -> bool:
    """Whether another here may have the lock, which came ``since``, before Redis is asked."""
    if not claim.is_live(now) or claim.rest > now:
        return False
    longest = min(MOST_SECONDS, MOST_OF_LEASE * claim.ttl / 1000)
    if claim.passes >= MOST_PASSES or now >= since + longest:
        return False
    return claim.deadline - now >= ENOUGH * claim.grant / 1000
