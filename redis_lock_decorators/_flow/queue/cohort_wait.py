"""Waiting for a lock in a cohort: be handed it by another member, or lead and compete for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue.cohort import Cohort, settle
from redis_lock_decorators._flow.queue.cohort_member import Local
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.self_waits import refuse_interrupted

#: Seconds after which a waiter looks by itself whether somebody leads.
LOOK = 0.25
#: Very many others look less and less often, and at least so often, in seconds: that is less than
#: the silence after which nobody waits for them.
LONGEST_LOOK = 2.0


async def acquire(
    port: QueuePort,
    claim: Claim,
    compete: Callable[[], Awaitable[Refusal | None]],
    stop: float,
) -> Refusal | None:
    """Be passed the lock here, or lead and ``compete`` for it. None: it is held."""
    claim.cohort = cohort = port.cohort(claim.keys[0], claim.expire_ms)
    if cohort.owners.covers(claim):
        claim.cohort = None
        return await compete()
    while True:
        refusal = await _wait(port, claim, cohort, compete, stop)
        if refusal is not None or port.now() < claim.deadline:
            return refusal
        claim.replace_identifier()  # it was passed the lock, but woke when its lease was over


async def _wait(
    port: QueuePort,
    claim: Claim,
    cohort: Cohort,
    compete: Callable[[], Awaitable[Refusal | None]],
    stop: float,
) -> Refusal | None:
    local = claim.cohort_waiter = Local(claim, port.wakeup())
    pause = LOOK
    try:
        cohort.owners.come(local)
        while local.gift is None:
            now = local.acted = port.now()
            cohort.stand(local)
            if cohort.lead(local, now):
                if not cohort.go(local):
                    continue
                refusal = await compete()
                if refusal is None:
                    cohort.holder, cohort.since = claim, port.now()
                return refusal
            left = stop - now
            if left <= 0 and cohort.go(local):
                return Refusal(None)
            if cohort.holder is not None:
                refuse_interrupted(port, claim, cohort.holder.identifier)
            pause = LOOK if cohort.is_near(local) else min(2 * pause, LONGEST_LOOK)
            await local.wakeup.wait(max(0.0, min(left, pause)))
        return None
    finally:
        cohort.go(local)
        settle(claim)
        cohort.owners.leave(local)
        cohort.step_down(local, port.now())
