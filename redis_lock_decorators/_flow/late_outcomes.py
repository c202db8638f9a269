"""Outcomes of interrupted releases, from replies that arrive after the interruption."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.completion import Completion
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.owner_info import verb_reply
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, ReplyMismatch, may_have_run, text
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.errors import shown

#: Seconds between two checks whether an attempt has ended: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
#: ``Claim.late_reply``.
LateReply = tuple[Callable[[float], Awaitable[Any]], str, Callable[..., Any]]
#: An attempt to release keys.
Attempt = Callable[[], Awaitable[Refusal | None]]


async def completed(
    port: Port, claim: Claim, keys: tuple[bytes, ...], attempt: Attempt
) -> Refusal | None:
    """Return the outcome of an attempt that is completed even if the caller is cancelled.

    It is made in a separate task, which takes time: for releases by several requests. If the caller
    is interrupted, the claim refers to the attempt, for ``late_outcome``.
    """
    if not port.cancellable:
        return await attempt()
    completion = Completion(keys)
    try:
        await port.shield(partial(_complete, port, claim, completion, attempt))
    except BaseException:
        claim.completion = completion
        raise
    if not completion.is_done:  # the tasks that made it were cancelled again and again
        await _complete(port, claim, completion, attempt)
    error, completion.error = completion.error, None
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback refers to this frame: a reference cycle
    refusal: Refusal | None = completion.refusal
    return refusal


async def _complete(port: Port, claim: Claim, completion: Completion, attempt: Attempt) -> None:
    if claim.release_sent is not None:  # the task of this attempt was cancelled
        claim.note_maybe_released(*claim.release_sent)
    try:
        completion.refusal = await attempt()
    except Exception as error:
        if not port.is_outcome(error):
            raise
        completion.error = error
    completion.is_done = True


async def late_outcome(port: Port, claim: Claim) -> Refusal | None:
    """The refusal of an interrupted release, if its reply has one and it was for all keys.

    Otherwise the claim notes what is known, and the release is to be repeated: which keys were
    released, that nothing was run, or still that the request may have been run.
    """
    if claim.completion is not None:
        return await _outcome_of(port, claim, claim.completion)
    sent, refusal = claim.release_sent, None
    if claim.late_reply is None or sent is None:
        return None
    try:
        refusal = await _refusal(port, claim, claim.late_reply)
    except Exception as error:
        if not port.is_outcome(error):
            raise
        if port.is_answer(error) and not may_have_run(port, error):
            claim.release_sent = None
    else:
        if refusal is None:  # first, as an exception from outside may come at the next line
            claim.released_keys += sent[0]
        claim.release_sent = None
    claim.late_reply = None
    return refusal if sent[0] == claim.keys else None


async def _outcome_of(port: Port, claim: Claim, completion: Completion) -> Refusal | None:
    """The same for an attempt in its own task, which itself notes what a failure leaves open."""
    until, pause = port.now() + ROUND_TRIP, FIRST_PAUSE
    while not completion.is_done and port.now() < until:
        await port.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    claim.completion = None
    if not completion.is_done:
        warn_unknown(claim)
    if not completion.is_done or completion.error is not None:
        return None
    if completion.refusal is None:  # first, as an exception from outside may come at the next line
        claim.released_keys += completion.keys
    claim.release_sent = None
    return completion.refusal if completion.keys == claim.keys else None


async def explained(
    port: Port,
    claim: Claim,
    refusal: Refusal,
    late: LateReply,
    sent: tuple[tuple[bytes, ...], float],
) -> Refusal | None:
    """The outcome of a release that was repeated, and refused, before its first reply arrived.

    The reply shows whether the first request released the keys. Without it that is not known: the
    claim notes that they may have been released, which explains a key that is gone.
    """
    try:
        return await _refusal(port, claim, late)
    except Exception as error:
        if not port.is_outcome(error):
            raise
        if port.is_answer(error) and not may_have_run(port, error):
            return refusal
    claim.note_maybe_released(*sent)
    if refusal.is_taken or not claim.maybe_released:
        return refusal
    warn_unknown(claim)
    return None


def warn_unknown(claim: Claim) -> None:
    """Warn that no reply to a release has arrived so far."""
    log.warning(
        "the release of lock %s was interrupted, and its reply has not arrived: whether the lock "
        "was lost before is not known; check that the server is not overloaded",
        shown(claim.lock_name),
    )


def warn_failed(claim: Claim, error: Exception) -> None:
    """Warn that an interrupted release has failed; nobody else gets its error."""
    log.warning(
        "the release of lock %s was interrupted, and its repetition failed (%s): whether the lock "
        "was lost before is not known, and it may stay locked until its lease ends",
        *(shown(claim.lock_name), described(error)),
    )


def warn_late_hand_off(claim: Claim) -> None:
    """Warn that a lock was gone when the code that it was handed to woke after its lease."""
    log.warning(
        "the lease of lock %s ended before the code that was handed it began: whether it was lost "
        "while the code before held it is not known; do not block the process for so long",
        shown(claim.lock_name),
    )


async def _refusal(port: Port, claim: Claim, late: LateReply) -> Refusal | None:
    arrival, mark, read = late
    reply: Any = verb_reply(await arrival(port.now() + ROUND_TRIP))
    first, *rest = reply if isinstance(reply, list) else (reply,)
    if text(first) != mark:
        raise ReplyMismatch("a reply to another command arrived for release", claim.lock_name)
    refusal: Refusal | None = read(*rest) if rest else None
    return refusal
