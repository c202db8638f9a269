"""Letting go: only what is ours, whatever way the server offers."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Iterable
from functools import partial

from redis_lock_decorators.errors import LockLostError, LockNotOwnedError, shortened, shown
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.cohort import pass_on
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import (
    ROUND_TRIP,
    Refusal,
    Send,
    ask,
    cancel,
    groups,
    persist,
)
from redis_lock_decorators.flow.ways import native, transaction
from redis_lock_decorators.rules import durations
from redis_lock_decorators.rules.keys import with_queue
from redis_lock_decorators.rules.options import ReleaseMethod

log = logging.getLogger("redis_lock_decorators")


async def release(port: Port, claim: Claim, method: ReleaseMethod) -> None:
    """Let a held claim go; nothing to do if it is gone already.

    Raises:
        LockLostError: the lease had ended before: another may have been inside.
        LockNotOwnedError: the claim belongs to the process that this one was forked from.
    """
    if claim.ended:
        return
    refuse_fork(claim)
    if claim.cohort is not None and pass_on(port, claim):
        end(port, claim)
        return
    in_time = port.now() < claim.deadline
    try:
        work = partial(let_go, port, claim, method)
        if claim.has_queued:  # others wait: it may overtake what tasks have asked meanwhile
            work = partial(let_go, port, claim, method, send=port.hasten)
        refusal = await persist(port, work, claim.deadline)
    except Exception:
        raise
    except BaseException:
        await port.shield(let_go(port, claim, method, port.now() + ROUND_TRIP))
        end(port, claim)
        raise
    end(port, claim)
    if claim.lost_to is not None:
        raise LockLostError(claim.lock_name, why=claim.lost_to)
    if refusal is not None and not (in_time and _is_our_work(port, claim, refusal)):
        raise lost(port, claim, refusal)


async def leave(port: Port, claim: Claim, method: ReleaseMethod, failed: bool) -> None:
    """Let go at the end of a block; never in place of the exception that ``failed`` it.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    was_lost = claim.is_lost(port.now())
    try:
        await release(port, claim, method)
    except LockNotOwnedError as error:
        if not failed:
            raise
        log.warning("%s", error)
    except Exception as error:
        end(port, claim)
        log.warning(
            "lock %s could not be let go (%s: %s); it frees itself when its lease ends",
            *(shown(claim.lock_name), type(error).__name__, error),
        )
        if was_lost and not failed:
            why = claim.lost_to or "its time ran out"
            raise LockLostError(claim.lock_name, why=why) from error


def let_go(
    port: Port, claim: Claim, method: ReleaseMethod, until: float, send: Send | None = None
) -> Awaitable[Refusal | None]:
    """Let the claim's keys go where they hold its identifier. None: all were let go."""
    claim.parting += 1
    parts = groups(port, claim) if method == "script" else [(key,) for key in claim.keys]
    if len(parts) == 1:
        return let_go_part(port, claim, parts[0], method, until, send)
    return _let_go_parts(port, claim, parts, method, until)


async def _let_go_parts(
    port: Port,
    claim: Claim,
    parts: Iterable[tuple[bytes, ...]],
    method: ReleaseMethod,
    until: float,
) -> Refusal | None:
    refusals, failures = [], []
    for part in parts:
        try:
            refusals.append(await let_go_part(port, claim, part, method, until))
        except Exception as error:  # one sick node does not keep the keys of a healthy one
            failures.append(error)
    if failures:
        raise failures[0]
    found = [refusal for refusal in refusals if refusal is not None]
    return max(found, key=lambda refusal: refusal.holder or "", default=None)


def let_go_part(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send | None = None,
) -> Awaitable[Refusal | None]:
    """Let those keys of the claim go that one request may touch."""
    if claim.place is not None:
        return cancel(port, claim, claim.place, until)
    if method == "script":
        if claim.rest > -math.inf:
            return _lay_down(port, claim, part, until)
        return ask(port, "release", claim, with_queue(part), until=until, send=send)
    one = transaction if method == "transaction" else native
    return one(port, claim, part[0], until)


async def _lay_down(
    port: Port, claim: Claim, part: tuple[bytes, ...], until: float
) -> Refusal | None:
    """Let go, but let the lock stand until its least time is over."""
    left = claim.rest - port.now()
    if left <= 0:
        return await ask(port, "release", claim, with_queue(part), until=until)
    milliseconds = durations.milliseconds(left)
    return await ask(port, "rest", claim, with_queue(part), milliseconds, until=until)


def _is_our_work(port: Port, claim: Claim, refusal: Refusal) -> bool:
    """Whether the keys may be gone by our own earlier request, whose reply was lost."""
    if claim.parting > 1:
        return True  # another may even have taken the lock since
    return port.resends and refusal.holder is None


def end(port: Port, claim: Claim) -> None:
    """Forget a claim that is over."""
    claim.ended = True
    forget(port, claim)
    if claim.cohort is not None:
        claim.cohort.stir(port.now())


def forget(port: Port, claim: Claim) -> None:
    """Let the claim's keys be taken again by its owner."""
    for key in claim.keys:
        if port.held.get(key) is claim:
            del port.held[key]


def lost(port: Port, claim: Claim, refusal: Refusal) -> LockLostError:
    """The error for a lease that Redis says is not ours, which is remembered."""
    forget(port, claim)
    claim.lost_to = claim.lost_to or refused(refusal)
    return LockLostError(claim.lock_name, holder=refusal.holder, why=claim.lost_to)


def refused(refusal: Refusal) -> str:
    """Why a lease is lost, as Redis says."""
    return f"{shortened(refusal.holder)} holds it" if refusal.holder else "its key is gone"


def refuse_over(claim: Claim) -> None:
    """Refuse a claim that was let go, or that is known to be lost."""
    if claim.lost_to is not None:
        raise LockLostError(claim.lock_name, why=claim.lost_to)
    if claim.ended or claim.parting > 0:
        raise LockNotOwnedError(claim.lock_name, why="this lease of it was released")


def refuse_fork(claim: Claim) -> None:
    """Refuse a claim inherited over a fork: the parent holds it, the child does not."""
    if not claim.is_of_this_process():
        raise LockNotOwnedError(
            claim.lock_name, why=f"it is held by the parent process {claim.process}"
        )
