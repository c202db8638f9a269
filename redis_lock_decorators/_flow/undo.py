"""Undo a failed acquisition, or release what an interrupted block may hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from redis_lock_decorators._flow.claim import FLOW, Claim, claim_on
from redis_lock_decorators._flow.late_outcomes import warn_late_hand_off
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort import complete_hand_offs
from redis_lock_decorators._flow.release import Notify, close, end, note_over, release_and_log
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    Refusal,
    is_unknown,
)
from redis_lock_decorators._flow.retries import (
    clean_up,
    cleanup_limits,
)
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, TimeLimits

#: Seconds to try to undo an acquisition on a server that has just failed to answer.
UNDO_TIME = 0.25


async def undo(
    port: Port, claim: Claim, cause: BaseException | None = None, notify: Notify | None = None
) -> None:
    """Release what a failed acquisition or an interrupted block may hold.

    A request without a reply may be run. If the claim was held before, its loss is recorded,
    and ``notify`` is called afterwards, even if the caller was cancelled and has returned.
    """
    if not claim.is_of_this_process():
        return
    flow = object()
    try:
        if claim.release_flow.setdefault(FLOW, flow) is flow:  # else that release is completed
            await _undo(port, claim, cause, notify)
    finally:
        try:
            if claim.release_flow.get(FLOW) is flow:
                claim.release_flow.pop(FLOW, None)
        finally:  # again, as an exception from outside may come between the lines above
            if claim.release_flow.get(FLOW) is flow:
                claim.release_flow.pop(FLOW, None)


async def _undo(
    port: Port, claim: Claim, cause: BaseException | None, notify: Notify | None
) -> None:
    complete_hand_offs(claim)
    if not claim.identifier:  # it was handed off, or no request was sent
        end(port, claim)
        return
    if claim.was_held() and port.now() >= claim.deadline:
        note_over(claim)
    if cause is not None or claim.was_held():
        claim.sends_text = True  # a server that is silent now may run it later
    is_outage = isinstance(cause, Exception) and is_unknown(port, cause)
    until = cleanup_limits(port, UNDO_TIME if is_outage else ROUND_TRIP)
    once = partial(release_keys, port, claim, "script")
    undo_keys = (
        once if is_outage else partial(clean_up, port, once)
    )  # an outage was waited out already
    await port.shield(partial(_end_and_undo, port, claim, undo_keys, until, notify), ROUND_TRIP)


async def release_late_hand_off(port: Port, claim: Claim) -> None:
    """Release a lock that was handed to a claim whose lease has ended since; warn if it is gone.

    It may end later in Redis, as after an extension without a reply. If this is interrupted, the
    claim is undone, which does the same.
    """
    late = claim_on(claim.keys[0], claim.expire, claim.identifier, claim.lock_name)
    try:
        refusal = await release_keys(port, late, "script", port.now() + ROUND_TRIP)
    except Exception as error:
        if not port.is_outcome(error):
            raise
        return  # it expires
    if refusal is not None:
        warn_late_hand_off(claim)


async def _end_and_undo(
    port: Port,
    claim: Claim,
    undo_keys: Callable[[TimeLimits], Awaitable[Refusal | None]],
    until: TimeLimits,
    notify: Notify | None,
) -> None:
    """End the claim, but not if an exception from outside cuts this short: then it is repeated."""
    try:
        # One who has handed it off was not told of a loss.
        if claim.was_held() or (claim.hand_offs and port.now() < claim.deadline):
            close(port, claim)
            await release_and_log(port, claim, partial(undo_keys, until), notify)
        else:
            end(port, claim)
            if await undo_keys(until) is not None and claim.hand_offs:
                warn_late_hand_off(claim)
    except BaseException as error:
        if isinstance(error, EXHAUSTED) or not port.is_outcome(error):
            claim.reopen()
        raise
