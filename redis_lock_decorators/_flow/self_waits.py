"""Refuse to wait for a lock that only this same thread or task could release."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators.errors import LockError


def refuse_own_block(port: Port, claim: Claim) -> None:
    """Refuse a claim whose key is held by a block of this thread or task.

    Raises:
        LockError: this thread or task is in such a block, or, for a blocking lock, another task of
            this thread is.
    """
    for key, name in zip(claim.keys, claim.lock_names, strict=True):
        other = port.held.find(key)
        if other is None or not other.is_of(claim.owner) or not other.is_live(port.now()):
            continue
        if other.has_handed_off():
            continue
        if _is_inside(claim, other):
            raise LockError(
                f"lock {name!r:.80} is already held by this same thread or task, which would "
                "wait for itself: acquire it once, outside, and pass the lease as an argument",
                name,
            )
        if port.would_stop_tasks():
            raise LockError(
                f"lock {name!r:.80} is already held by another task of this event loop, which "
                "could not go on while this one waits: a blocking lock inside async code stops "
                "all tasks; use that of redis_lock_decorators.asyncio",
                name,
            )


def refuse_interrupted(port: Port, claim: Claim, holder: str | None) -> list[Claim]:
    """Refuse to wait for a ``holder`` that is being acquired or released on this same stack.

    A signal handler or finalizer runs on the thread that it interrupts. If that is acquiring or
    releasing the lock, it cannot read the reply before the handler returns. If it waits for it in a
    cohort, it is handed nothing until then.
    Returns the claims of interrupted code, which do not hold the lock.

    Raises:
        LockError: the interrupted code holds the lock by this identifier.
    """
    others = [other for other in port.interrupted() if other is not claim]
    for other in others:
        if holder in _identifiers(other):
            raise LockError(
                f"lock {claim.lock_name!r:.80} is held by this same thread, which is acquiring or "
                "releasing it: a signal handler or finalizer that interrupts it would wait for "
                "itself; try the lock once there (acquire_time=0), or do the work later",
                claim.lock_name,
            )
        if other.cohort_waiter is not None and other.keys == claim.keys:
            other.cohort_waiter.note_progress(-math.inf)
    return others


def _is_inside(claim: Claim, other: Claim) -> bool:
    """Whether the code that waits for a claim runs inside the block of the other one.

    A block that was entered on this thread may end on another, as in frameworks with thread pools.
    The context of the code shows that it is not inside.
    """
    return claim.is_inside is None or other.in_transition or claim.is_inside(other)


def _identifiers(claim: Claim) -> list[str]:
    """The identifiers by which a claim may hold its keys.

    During a hand-off within its cohort it is that of the other claim. A waiter that joins the queue
    again may have been granted the lock by its former entry.
    """
    entries = [] if claim.queue_wait is None else claim.queue_wait.entries()
    received = None if claim.cohort_waiter is None else claim.cohort_waiter.handed_lock
    identifier = claim.identifier if received is None else received.identifier
    own = [] if claim.has_handed_off() else [identifier]
    return own + [entry.split("|")[1] for entry in entries]
