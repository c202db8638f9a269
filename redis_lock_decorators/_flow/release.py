"""Release: each claim ends once, whatever happens, and its loss is raised or reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from redis_lock_decorators._flow.claim import FLOW, Claim, refuse_fork
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED, RELEASE_FAILED, RELEASING
from redis_lock_decorators._flow.error_notes import add_note
from redis_lock_decorators._flow.late_outcomes import (
    explained,
    late_outcome,
    warn_failed,
    warn_unknown,
)
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import (
    found_instead,
    record_expiry,
    record_loss,
    reported_loss,
)
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.cohort import hand_off
from redis_lock_decorators._flow.release_flow import wait_for_other
from redis_lock_decorators._flow.release_requests import release_keys, release_keys_completely
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    Refusal,
    Send,
)
from redis_lock_decorators._flow.retries import (
    clean_up,
    cleanup_limits,
    decide_repeat,
    first_until,
    repeat,
)
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError

#: Reports the loss of a claim if one is recorded; called more than once, it reports it once.
Notify = Callable[[], object]


async def release(
    port: Port, claim: Claim, method: ReleaseMethod, notify: Notify | None = None
) -> None:
    """Release a held claim; do nothing if it has ended already, or another release ends it.

    ``notify`` is called after a separate task has completed the release: the caller may be gone.

    Raises:
        LockLostError: the lease had ended before, so another client may have been inside; also if
            the server cannot be reached to clean up.
        LockNotOwnedError: the claim belongs to the process that this one was forked from.
    """
    if claim.state is ENDED:
        return
    refuse_fork(claim)
    flow = object()
    try:  # all in one coroutine: another one would cost each block microseconds
        if claim.release_flow.setdefault(FLOW, flow) is not flow:
            await wait_for_other(port, claim, flow)
        if claim.release_flow.get(FLOW) is not flow or claim.state is ENDED:
            return  # the other release completes it, or has ended it
        if claim.cohort is not None and hand_off(port, claim):
            if claim.observer is not None:
                claim.observer.ended(claim, port.now())
            claim.state = ENDED  # not by ``end``: the lock is held, so its cohort needs no leader
            port.held.forget(claim)
            return
        send: Send | None = None
        if claim.has_queued or claim.hand_offs:
            # The script grants the lock to the next waiter in the same round trip, and records its
            # release, so that a lost reply is not mistaken for a loss. Waiters come first: it is
            # sent before the requests of other tasks.
            method, send = "script", port.send_urgent
        began, was_tried = port.now(), claim.state is RELEASE_FAILED
        if began >= (end_of_lease := claim.deadline):
            note_over(claim)
        try:
            until = first_until(began, end_of_lease)
            try:
                if method == "script":
                    refusal = await release_keys(port, claim, method, until, send)
                else:
                    refusal = await release_keys_completely(port, claim, method, until)
            except Exception as error:
                failed = partial(_note_failure, claim)
                if not decide_repeat(port, error, began, failed):
                    raise
                work = partial(release_keys, port, claim, method, send=send)
                if method != "script":
                    work = partial(release_keys_completely, port, claim, method)
                refusal = await repeat(port, work, until, end_of_lease, error, failed)
        except BaseException as error:
            if not port.is_outcome(error):
                await _release_after_interrupt(port, claim, method, notify)
            elif claim.unique and _was_lost(claim, began, was_tried):
                end(port, claim)
                raise record_expiry(port, claim) from error
            add_note(port, claim, error, "released", began)
            raise
        if refusal is not None or claim.lost_reason is not None or claim.was_over:
            _raise_loss(port, claim, refusal)
        end(port, claim)
    finally:  # these lines are repeated in ``undo``: a function for them would cost each block time
        try:
            if claim.release_flow.get(FLOW) is flow:
                claim.release_flow.pop(FLOW, None)
        finally:  # again, as an exception from outside may come between the lines above
            if claim.release_flow.get(FLOW) is flow:
                claim.release_flow.pop(FLOW, None)


def _was_lost(claim: Claim, began: float, was_tried: bool) -> bool:
    """Whether a claim was lost when its release began; unknown if an earlier one had no reply."""
    return claim.lost_reason is not None or (claim.is_lost(began) and not was_tried)


def note_over(claim: Claim) -> None:
    """Note that the deadline of a claim passed before its first release, or its undoing, began.

    Its holder did not know then whether it was still the only one. That its key is found says
    nothing: a delayed copy of the request that acquired it may have set the key again. Functions
    and drop-ins have no lease, and a caller's own identifier may be held by others.
    """
    if claim.state is ACTIVE and claim.unique and claim.lease_ref is not None:
        claim.was_over = True


def _raise_loss(port: Port, claim: Claim, refusal: Refusal | None) -> None:
    """Raise the error for a lost claim, and end it.

    The loss is recorded before the claim ends. If an exception from outside comes in between, the
    release is repeated, and finds the loss again.
    """
    if refusal is not None:
        _note_doubt(claim, refusal)
    found: LockLostError | None = None
    try:
        if claim.lost_reason is not None:
            found = reported_loss(claim)
        elif refusal is not None:
            found = record_loss(port, claim, refusal)
        else:
            found = record_expiry(port, claim)
        raise found
    except LockLostError as error:
        if error is found:  # otherwise a signal handler's
            end(port, claim)
        raise
    finally:
        del found  # its traceback refers to this frame: a reference cycle


async def _release_after_interrupt(
    port: Port, claim: Claim, method: ReleaseMethod, notify: Notify | None
) -> None:
    """Release after an exception from outside, which may have come at any line.

    The task that releases reports the end of the lease: the caller may leave before it is known.
    """
    outcome: list[str] = []  # empty while it is not known

    async def work() -> Refusal | None:
        refusal = await _complete(port, claim, method)
        outcome.append("known")
        return refusal

    try:
        await port.shield(partial(release_and_log, port, claim, work, notify))
    except EXHAUSTED:  # another stack repeats it
        raise
    except BaseException as error:
        if not outcome and (not port.cancellable or isinstance(error, Exception)):
            raise  # a second one from outside, no cancellation: the caller repeats the release
        close(port, claim)
        if not outcome:
            warn_unknown(claim)
        raise
    close(port, claim)


async def _complete(port: Port, claim: Claim, method: ReleaseMethod) -> Refusal | None:
    """Complete an interrupted release: by its reply if that arrives, otherwise by another."""
    late, sent = claim.late_reply, claim.release_sent
    refusal = await late_outcome(port, claim)
    if refusal is not None:
        return refusal
    once = partial(release_keys, port, claim, method)
    if late is None or sent is None or sent[0] != claim.keys or claim.release_sent is None:
        return await clean_up(port, once, cleanup_limits(port, ROUND_TRIP))
    # The first request may still be run, and only its reply shows then whether it released.
    try:
        claim.release_sent, noted = None, claim.maybe_released
        refusal = await clean_up(port, once, cleanup_limits(port, ROUND_TRIP))
        if refusal is None or claim.maybe_released != noted:
            return refusal
        return await explained(port, claim, refusal, late, sent)
    except BaseException:
        claim.note_maybe_released(*sent)
        raise


async def release_and_log(
    port: Port,
    claim: Claim,
    work: Callable[[], Awaitable[Refusal | None]],
    notify: Notify | None = None,
) -> None:
    """Release a claim by ``work``; record, report and log its loss, as another exception is raised.

    It may run in a separate task, and its caller may have returned before the loss is recorded.
    """
    try:
        refusal = await work()
        if refusal is not None:
            _note_doubt(claim, refusal)
            log.warning("%s", record_loss(port, claim, refusal))
        elif claim.was_over and claim.lost_reason is None:
            log.warning("%s", record_expiry(port, claim))
        elif claim.observer is not None:
            claim.observer.ended(claim, port.now())
    except Exception as error:
        if port.is_outcome(error):
            if claim.observer is not None:
                claim.observer.ended(claim, port.now(), type(error).__name__)
            warn_failed(claim, error)
        raise
    finally:
        if notify is not None:
            notify()


def _note_failure(claim: Claim, error: Exception, sent: float) -> None:
    """Record that a release has failed; ``with_fallbacks`` notes what it may have done."""
    if claim.state is RELEASING:
        claim.state = RELEASE_FAILED


def _note_doubt(claim: Claim, refusal: Refusal) -> None:
    """Record as the reason of a loss that it may be none: an earlier release had no reply."""
    if refusal.is_taken and claim.maybe_released and claim.lost_reason is None:
        why = f"{found_instead(refusal)}, and whether it was released before is not known"
        claim.lost_reason, claim.lost_holder = why, refusal.holder


def end(port: Port, claim: Claim) -> None:
    """End a claim, report that, and let its cohort compete for the lock."""
    if claim.observer is not None:  # first: it is repeated until the claim has ended
        claim.observer.ended(claim, port.now())
    close(port, claim)


def close(port: Port, claim: Claim) -> None:
    """End a claim as ``end`` does; whether it was released is reported once that is known."""
    claim.state = ENDED
    claim.queue_record = None  # they refer to each other
    port.held.forget(claim)
    if claim.cohort is not None:
        claim.cohort.wake_next(port.now())
