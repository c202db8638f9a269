"""Refusing to wait for a lock that this same thread or task has, and could not let go meanwhile."""

from __future__ import annotations

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators.errors import LockError


def refuse_own_block(port: Port, claim: Claim) -> None:
    """Refuse a claim inside a block of one of its keys, or inside an event loop that runs such one.

    Raises:
        LockError: this thread or task is in such a block, or another task of this thread is.
    """
    for key, name in zip(claim.keys, claim.lock_names, strict=True):
        other = port.held.find(key)
        if other is None or not other.is_of(claim.owner) or not other.is_live(port.now()):
            continue
        if _is_around(claim, other):
            raise LockError(
                f"lock {name!r:.80} is already held by this same thread or task, which would "
                "wait for itself: take it once, outside, and pass the lease on",
                name,
            )
        if port.would_stop_tasks():
            raise LockError(
                f"lock {name!r:.80} is already held by another task of this event loop, which "
                "could not go on while this one waits: a blocking lock inside async code stops "
                "all tasks; use that of redis_lock_decorators.asyncio",
                name,
            )


def refuse_interrupted(port: Port, claim: Claim, holder: str | None) -> None:
    """Refuse to wait for a ``holder`` that is being taken or let go beneath, on this same stack.

    A signal handler, or a finalizer, runs on the thread that it interrupts. If that is amid the
    exchange that takes or releases the lock, it learns of the reply only after the handler.

    Raises:
        LockError: what is interrupted holds the lock by this identifier.
    """
    if holder is None:
        return
    for other in port.interrupted():
        if other is not claim and _identifier(other) == holder:
            raise LockError(
                f"lock {claim.lock_name!r:.80} is held by this same thread, which is taking it or "
                "letting it go: a signal handler or finalizer that interrupts that would wait for "
                "itself; try the lock once there (acquire_time=0), or do the work later",
                claim.lock_name,
            )


def _is_around(claim: Claim, other: Claim) -> bool:
    """Whether a claim would be waited for in its own block, which its owner has entered.

    A block may move: what entered it on this thread may leave it on another, as frameworks do that
    run code in a pool of threads. Then this thread holds it no more, and its context tells so.
    """
    return claim.is_around is None or other.in_transition or claim.is_around(other)


def _identifier(claim: Claim) -> str:
    """By what a claim may hold its keys, also while its lease is passed on within the process."""
    waiter, next_member = claim.cohort_waiter, claim.next_member
    received = None if waiter is None else waiter.handover
    identifier = claim.identifier if received is None else received.identifier
    given = None if next_member is None else next_member.handover
    return "" if given is not None and given.identifier == identifier else identifier
