"""Waiting for a lock in a cohort: be handed it by another member, or lead and compete for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.hand_off_decision import HandOffDecision
from redis_lock_decorators._flow.queue.cohort import Cohort, complete_hand_offs
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.self_waits import refuse_interrupted

#: Ask Redis for the lock; None: it is held.
Compete = Callable[[], Awaitable[Refusal | None]]

#: Seconds between two checks of a waiter near the head whether it is to lead.
RECHECK = 0.25
#: Seconds between two checks of the others at most. Shorter than the silence after which a waiter
#: is passed over.
LONGEST_RECHECK = 2.0


async def acquire(
    port: QueuePort,
    claim: Claim,
    compete: Compete,
    try_last: Compete,
    stop: float,
    release_late: Callable[[], Awaitable[object]],
) -> Refusal | None:
    """Wait until ``stop`` to be handed the lock, or lead and ``compete`` for it.

    A waiter that does neither asks Redis by ``try_last``, unless this process holds the lock: it
    does not know whether the leader was refused, or got no reply. ``release_late`` releases a lock
    that it was handed if it woke after the end of the lease.
    Returns the refusal, or None: the lock is held.
    """
    claim.cohort = cohort = port.cohort(claim.keys[0], claim.expire_ms)
    if cohort.owners.suspend_for(claim):
        claim.cohort = None  # it is not handed off
        return await compete()
    claim.hand_off_decision = HandOffDecision()
    while True:
        refusal = await _wait(port, claim, cohort, compete, try_last, stop)
        if refusal is not None or port.now() < claim.deadline:
            return refusal
        if claim.hand_offs:
            await release_late()
        claim.replace_identifier()


async def _wait(
    port: QueuePort,
    claim: Claim,
    cohort: Cohort,
    compete: Compete,
    try_last: Compete,
    stop: float,
) -> Refusal | None:
    waiter = claim.cohort_waiter = CohortWaiter(claim, port.wakeup())
    pause = RECHECK
    try:
        cohort.owners.add(waiter)
        while waiter.handed_lock is None:
            now = waiter.acted = port.now()
            cohort.add(waiter)
            left, leads = stop - now, cohort.lead(waiter, now)
            if leads or left <= 0:
                if not cohort.withdraw(waiter):
                    continue
                if not leads and cohort.is_held(now):
                    return cohort.refusal(now)
                refusal = await (compete() if leads else try_last())
                if refusal is None:
                    cohort.holder, cohort.since = claim, port.now()
                return refusal
            if _interrupts_other(port, claim, cohort) and cohort.withdraw(waiter):
                claim.cohort = None  # it is not handed off
                return await compete()
            pause = RECHECK if cohort.is_near(waiter) else min(2 * pause, LONGEST_RECHECK)
            await waiter.wakeup.wait(max(0.0, min(left, pause)))
        return None
    finally:
        cohort.withdraw(waiter)
        complete_hand_offs(claim)
        claim.cohort_waiter = None  # they refer to each other
        cohort.owners.remove(waiter)
        cohort.stop_leading(waiter, port.now())


def _interrupts_other(port: QueuePort, claim: Claim, cohort: Cohort) -> bool:
    """Whether this code interrupts other code that may hold the lock, or waits for it in the queue.

    Then it asks Redis itself: no other member can tell by whom the lock is held.

    Raises:
        LockError: it interrupts the holder.
    """
    holder = None if cohort.holder is None else cohort.holder.identifier
    others = refuse_interrupted(port, claim, holder)
    return any(claim.keys[0] in other.keys and not other.has_handed_off() for other in others)
