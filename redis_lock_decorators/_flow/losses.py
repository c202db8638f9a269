"""Lost leases: why they are lost, and the errors that say so."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators.errors import (
    HOLDS,
    KEY_GONE,
    NEVER_SENT,
    RAN_OUT,
    LockError,
    LockLostError,
    LockNotOwnedError,
    shortened,
)


def record_loss(port: Port, claim: Claim, refusal: Refusal) -> LockLostError:
    """Record that Redis says the lease is not ours; the error for that.

    It is not recorded for an external token: with that the lock may be acquired again.
    """
    port.held.forget(claim)
    why = claim.lost_reason or why_refused(claim, refusal, port.now())
    if claim.unique:
        claim.lost_reason, claim.lost_holder = why, refusal.holder
    if claim.observer is not None:
        claim.observer.lost(claim, port.now(), why)
    return LockLostError(claim.lock_name, holder=refusal.holder, why=why)


def record_expiry(port: Port, claim: Claim, why: str = "") -> LockLostError:
    """Record that the lease is over, by default as its deadline has passed; the error for that."""
    port.held.forget(claim)
    why = claim.lost_reason = claim.lost_reason or why or why_expired(claim)
    if claim.observer is not None:
        claim.observer.lost(claim, port.now(), why)
    return reported_loss(claim)


def reported_loss(claim: Claim) -> LockLostError:
    """The error for a lease that was reported as lost."""
    return LockLostError(claim.lock_name, holder=claim.lost_holder, why=claim.lost_reason or "")


def why_expired(claim: Claim) -> str:
    """Why a lease is lost whose deadline has passed."""
    if claim.unrenewed is not None:
        return claim.unrenewed.why(claim.deadline)
    return NEVER_SENT if claim.renews else RAN_OUT


def why_refused(claim: Claim, refusal: Refusal, now: float) -> str:
    """Why a lease is lost that Redis refused ``now``: it may have expired before."""
    if -math.inf < claim.deadline <= now:
        return f"{why_expired(claim)}, and {found_instead(refusal)}"
    return found_instead(refusal)


def found_instead(refusal: Refusal) -> str:
    """What Redis has in place of the lease."""
    if refusal.holder:
        return f"{shortened(refusal.holder)}{HOLDS}"
    return refusal.why or KEY_GONE


def refuse_over(claim: Claim) -> None:
    """Refuse a claim that is released, being released, or reported as lost.

    Raises:
        LockLostError: it was reported as lost.
        LockNotOwnedError: its release has begun.
    """
    if claim.lost_reason is not None:
        raise reported_loss(claim)
    if claim.state is not ACTIVE:
        raise LockNotOwnedError(claim.lock_name, why="this lease of it was released")


def entered_twice(claim: Claim) -> LockError | None:
    """The error if a block of the claim is open: another one inside would release it at its end."""
    if claim.owner is None:
        return None
    return LockError(
        f"the lease of lock {claim.lock_name!r} is in a block already, and a second one would "
        "release it: use lease.check() there"
    )


def on_other_loop(claim: Claim) -> LockError:
    """The error for a request of a lease on another event loop than that of its acquisition."""
    return LockError(
        f"the event loop of the lease of lock {claim.lock_name!r} is another one: await this there"
    )
