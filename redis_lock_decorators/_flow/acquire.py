"""Acquire a lock: try, wait, try again; leave nothing behind however that ends."""

from __future__ import annotations

import math
from functools import partial

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.attempt import refuse_several_slots, unconfirmed
from redis_lock_decorators._flow.claim import Claim, refuse_fork
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED
from redis_lock_decorators._flow.error_notes import add_note
from redis_lock_decorators._flow.observer import Observer
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort import complete_hand_offs
from redis_lock_decorators._flow.queue.cohort_wait import acquire as acquire_in_cohort
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.release import end
from redis_lock_decorators._flow.requests import NeverSent, Refusal, groups
from redis_lock_decorators._flow.self_waits import refuse_own_block
from redis_lock_decorators._flow.undo import release_late_hand_off, undo
from redis_lock_decorators._flow.wait_strategies import WaitStrategy, compete, try_last
from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.errors import LockUnconfirmedError


async def acquire(
    port: QueuePort, claim: Claim, wait: float, delta: float, strategy: WaitStrategy = "steady"
) -> Refusal | None:
    """Acquire all keys of the claim or none, within ``wait`` seconds. None: they are held.

    A waiter joins the "queue" of a busy lock, or joins it together with others of this process
    (the "cohort"), or tries again about every ``delta`` seconds, at a "steady" pace or ("poll")
    less and less often. Several names are always polled.

    Raises:
        LockError: this thread or task would wait for itself: it is in a block of the lock, or this
            code is a signal handler that interrupted the acquisition or release of it; or this
            task is a copy in a forked child, for whose parent the lock was acquired.
        LockUnconfirmedError: a try found it free, but too few replicas confirmed in time.
    """
    if claim.fencing:
        refuse_several_slots(port, claim)
    if wait > 0 and port.held.has_any(claim.keys):
        refuse_own_block(port, claim)
    began = port.now()
    stop = began + wait
    queues = strategy in ("queue", "cohort") and wait > 0 and len(claim.keys) == 1
    if claim.observer is not None:
        claim.observer.acquiring(claim, began)
    refusal: Refusal | None
    try:
        if strategy == "cohort" and queues and not claim.is_fenced_or_confirmed():
            in_queue = partial(compete, port, claim, stop, delta, strategy, queues)
            last = partial(try_last, port, claim, stop)
            refusal = await acquire_in_cohort(
                *(port, claim, in_queue, last, stop, partial(release_late_hand_off, port, claim))
            )
        else:
            refusal = await compete(port, claim, stop, delta, strategy, queues)
        if refusal is None:
            _record_held(port, claim)
            return None
    except NeverSent as error:
        if len(groups(port, claim)) > 1:  # it may hold keys of another slot
            await undo(port, claim)
        refusal = Refusal(None, why=safe_text(error))
    except BaseException as error:
        if claim.observer is not None:
            claim.observer.failed(claim, port.now(), type(error).__name__)
        add_note(port, claim, error, "acquired", began)
        complete_hand_offs(claim)
        if claim.has_asked or claim.deadline > -math.inf:
            await undo(port, claim, error)
        else:  # nothing was sent, as while a connection was being opened
            end(port, claim)
        raise
    await _end_refused(port, claim)
    return refusal


def _record_held(port: Port, claim: Claim) -> None:
    if claim.process != fork.process_id:
        refuse_fork(claim)
    claim.entered = port.now()
    port.held.add(claim, port.now)
    if claim.observer is not None:
        claim.observer.acquired(claim, claim.entered)
    claim.state = ACTIVE


async def _end_refused(port: Port, claim: Claim) -> None:
    """Report a refusal and leave nothing behind; raise if a try could not be confirmed."""
    if claim.observer is not None:
        _report_refusal(claim, claim.observer, port.now())
    is_queued = claim.queue_entry is not None and claim.has_asked
    if is_queued or claim.deadline > -math.inf:
        await undo(port, claim)  # it may be granted later, or was granted too late
    claim.state = ENDED
    if claim.unconfirmed:
        raise unconfirmed(claim)


def _report_refusal(claim: Claim, observer: Observer, now: float) -> None:
    if claim.unconfirmed:
        observer.failed(claim, now, LockUnconfirmedError.__name__)
    else:
        observer.timed_out(claim, now)
