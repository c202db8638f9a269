"""Letting go: only what is ours, whatever way the server offers."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterable
from functools import partial

from redis_lock_decorators._flow import fork, unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED, RELEASE_FAILED, RELEASING
from redis_lock_decorators._flow.error_notes import note
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort import hand_off
from redis_lock_decorators._flow.release_fallbacks import with_fallbacks
from redis_lock_decorators._flow.release_methods import native, transaction
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    ROUND_TRIP,
    Refusal,
    Send,
    ask,
    cancel,
    first_until,
    groups,
    is_to_repeat,
    noted,
    repeat,
    tidy,
    tidying,
    worst,
)
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import (
    HOLDS,
    KEY_GONE,
    NEVER_SENT,
    RAN_OUT,
    LockLostError,
    LockNotOwnedError,
    shortened,
)


async def release(port: Port, claim: Claim, method: ReleaseMethod) -> None:
    """Let a held claim go; nothing to do if it is gone already.

    Raises:
        LockLostError: the lease had ended before: another may have been inside.
        LockNotOwnedError: the claim belongs to the process that this one was forked from.
    """
    if claim.state is ENDED:
        return
    refuse_fork(claim)
    if claim.cohort is not None and hand_off(port, claim):
        claim.state = ENDED  # nobody must lead, for it is held
        port.held.forget(claim)
        return
    if claim.state is RELEASING:  # an earlier release was interrupted
        claim.maybe_released = claim.keys
    method = _way(claim, method)
    began = port.now()
    try:
        # Where others wait it may overtake what tasks have asked meanwhile.
        send = port.send_urgent if claim.has_queued else None
        end_of_lease = claim.deadline
        until = first_until(began, end_of_lease)
        try:
            refusal = await release_keys(port, claim, method, until, send)
        except Exception as error:
            failed = partial(_note_unanswered, port, claim, method)
            if not is_to_repeat(port, error, began, failed):
                raise
            work = partial(release_keys, port, claim, method, send=send)
            refusal = await repeat(port, work, until, end_of_lease, error, failed)
    except BaseException as error:
        if not port.is_outcome(error):
            await _release_after_interrupt(port, claim, method)
        note(port, claim, error, "released", began)
        raise
    end(port, claim)
    if claim.lost_reason is not None:
        raise reported_loss(claim)
    if refusal is not None and not _is_explained(port, claim, method, refusal):
        raise lost(port, claim, refusal)


def _way(claim: Claim, method: ReleaseMethod) -> ReleaseMethod:
    """By what to let go. For who waited in a queue that is the script, which made the queue too.

    It hands the lock on in one trip, and notes who did: a lost reply is not taken for a loss then.
    """
    return "script" if claim.has_queued else method


async def _release_after_interrupt(port: Port, claim: Claim, method: ReleaseMethod) -> None:
    """Let go after an exception from outside, which came at any line."""
    claim.maybe_released = claim.keys  # it may have been sent
    try:
        work = partial(release_keys, port, claim, method)
        await port.shield(partial(tidy, port, work, tidying(port, ROUND_TRIP)))
    except EXHAUSTED:  # it is to be done on another stack
        raise
    except BaseException:
        end(port, claim)
        raise
    end(port, claim)


def release_keys(
    port: Port, claim: Claim, method: ReleaseMethod, until: float, send: Send | None = None
) -> Awaitable[Refusal | None]:
    """Let the claim's keys go where they hold its identifier. None: all were let go."""
    if claim.state is not ENDED:
        claim.state = RELEASING
    if method == "script" and not port.slotted:  # as most are
        return release_group(port, claim, claim.keys, method, until, send)
    parts = _parts(port, claim, method)
    if len(parts) == 1:
        return release_group(port, claim, parts[0], method, until, send)
    return _release_groups(port, claim, parts, method, until)


def _parts(port: Port, claim: Claim, method: ReleaseMethod) -> list[tuple[bytes, ...]]:
    """The keys, as many together as one request may let go."""
    return groups(port, claim) if method == "script" else [(key,) for key in claim.keys]


async def _release_groups(
    port: Port,
    claim: Claim,
    parts: Iterable[tuple[bytes, ...]],
    method: ReleaseMethod,
    until: float,
) -> Refusal | None:
    found, failures = [], []
    for part in parts:
        if part[0] in claim.released:
            continue
        sent = port.now()
        try:
            refusal = await release_group(port, claim, part, method, until)
        except Exception as error:  # one sick node does not keep the keys of a healthy one
            if not port.is_outcome(error):
                raise
            unanswered_releases.note(port, claim, part, error, sent)
            failures.append(error)
            continue
        if refusal is None or unanswered_releases.explains(claim, part, refusal):
            claim.released += part
        else:
            found.append(refusal)
    if failures:
        raise failures[0]
    return worst(found)


def release_group(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send | None = None,
) -> Awaitable[Refusal | None]:
    """Let those keys of the claim go that one request may touch."""
    if claim.queue_entry is not None:
        work: Awaitable[Refusal | None] = cancel(port, claim, claim.queue_entry, until)
    elif method == "script" and claim.held_until == -math.inf and not claim.maybe_released:
        work = _free(port, claim, part, until, send)
    else:
        work = _release_together(port, claim, part, method, until, send)
    return with_fallbacks(port, claim, part, method, until, work)


def _release_together(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send | None,
) -> Awaitable[Refusal | None]:
    if claim.maybe_released:
        send = partial(unanswered_releases.send_checked, port, claim, part, send or port.send)
    if method == "script":
        if claim.held_until > -math.inf:
            return _lay_down(port, claim, part, until, send)
        return _free(port, claim, part, until, send)
    one = transaction if method == "transaction" else native
    return one(port, claim, part[0], until)


async def _lay_down(
    port: Port, claim: Claim, part: tuple[bytes, ...], until: float, send: Send | None
) -> Refusal | None:
    """Let go, but let the lock stand until its least time is over."""
    left = claim.held_until - port.now()
    if left <= 0:
        return await _free(port, claim, part, until, send)
    details = (durations.milliseconds(left), *noted(port, claim))
    return await ask(port, "min_hold", claim, with_notes(part), *details, until=until, send=send)


def _free(
    port: Port, claim: Claim, part: tuple[bytes, ...], until: float, send: Send | None
) -> Awaitable[Refusal | None]:
    keys = with_notes(part)
    return ask(port, "release", claim, keys, *noted(port, claim), until=until, send=send)


def _note_unanswered(
    port: Port, claim: Claim, method: ReleaseMethod, error: Exception, sent: float
) -> None:
    """Note that all keys may be gone by one request of ours, ``sent`` and not answered."""
    if claim.state is RELEASING:
        claim.state = RELEASE_FAILED
    if len(_parts(port, claim, method)) == 1:
        unanswered_releases.note(port, claim, claim.keys, error, sent)


def _is_explained(port: Port, claim: Claim, method: ReleaseMethod, refusal: Refusal) -> bool:
    """Whether what a release found is no loss; of several parts each was judged by itself."""
    parts = _parts(port, claim, method)
    if len(parts) == 1 and unanswered_releases.explains(claim, parts[0], refusal):
        return True
    if refusal.is_taken and claim.maybe_released:
        why = f"{refused(refusal)}, and whether it was let go before is not known"
        if claim.lost_reason is None:
            claim.lost_reason, claim.lost_holder = why, refusal.holder
    return False


def end(port: Port, claim: Claim) -> None:
    """Forget a claim that is over."""
    claim.state = ENDED
    port.held.forget(claim)
    if claim.cohort is not None:
        claim.cohort.wake_next(port.now())


def forget(port: Port, claim: Claim) -> None:
    """Let the claim's keys be taken again by its owner."""
    port.held.forget(claim)


def lost(port: Port, claim: Claim, refusal: Refusal) -> LockLostError:
    """The error for a lease that Redis says is not ours, which is remembered.

    It is not for a token from elsewhere: by that the lock may be taken again.
    """
    forget(port, claim)
    why = claim.lost_reason or why_refused(claim, refusal, port.now())
    if claim.unique:
        claim.lost_reason, claim.lost_holder = why, refusal.holder
    return LockLostError(claim.lock_name, holder=refusal.holder, why=why)


def reported_loss(claim: Claim) -> LockLostError:
    """The error for a lease of which it is known that it is lost."""
    return LockLostError(claim.lock_name, holder=claim.lost_holder, why=claim.lost_reason or "")


def expired(port: Port, claim: Claim) -> LockLostError:
    """The error for a lease whose deadline has passed, which is remembered."""
    forget(port, claim)
    claim.lost_reason = claim.lost_reason or why_expired(claim)
    return reported_loss(claim)


def why_expired(claim: Claim) -> str:
    """Why a lease is lost whose deadline has passed."""
    if claim.unrenewed is not None:
        return claim.unrenewed.why(claim.deadline)
    return NEVER_SENT if claim.renews else RAN_OUT


def why_refused(claim: Claim, refusal: Refusal, now: float) -> str:
    """Why a lease is lost, by what Redis said ``now``: that it ran out before explains the rest."""
    if -math.inf < claim.deadline <= now:
        return f"{why_expired(claim)}, and {refused(refusal)}"
    return refused(refusal)


def refused(refusal: Refusal) -> str:
    """Why a lease is lost, as Redis says."""
    if refusal.holder:
        return f"{shortened(refusal.holder)}{HOLDS}"
    return refusal.why or KEY_GONE


def refuse_over(claim: Claim) -> None:
    """Refuse a claim that was let go, or that is known to be lost."""
    if claim.lost_reason is not None:
        raise reported_loss(claim)
    if claim.state is not ACTIVE:
        raise LockNotOwnedError(claim.lock_name, why="this lease of it was released")


def refuse_fork(claim: Claim) -> None:
    """Refuse a claim inherited over a fork: the parent holds it, the child does not."""
    if claim.process != fork.number:
        raise LockNotOwnedError(
            claim.lock_name, why=f"it is held by the parent process {claim.process}"
        )
