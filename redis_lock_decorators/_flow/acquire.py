"""Acquire a lock: try, wait, try again; leave nothing behind however that ends."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Literal

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.attempt import (
    TOO_LATE,
    refuse_several_slots,
    try_once,
    unconfirmed,
)
from redis_lock_decorators._flow.claim import FLOW, Claim, refuse_fork
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED
from redis_lock_decorators._flow.error_notes import add_note
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.observer import Observer
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.claim_entry import Try
from redis_lock_decorators._flow.queue.cohort import complete_hand_offs
from redis_lock_decorators._flow.queue.cohort_wait import acquire as acquire_in_cohort
from redis_lock_decorators._flow.queue.entry_requests import leave_queue
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.wait import NotificationsUnavailable
from redis_lock_decorators._flow.queue.wait import wait as wait_in_queue
from redis_lock_decorators._flow.release import Notify, close, end, release_and_log
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    NeverSent,
    Refusal,
    groups,
    is_forbidden,
    is_unknown,
)
from redis_lock_decorators._flow.retries import (
    decide_repeat,
    first_until,
    persist,
    repeat,
    tidy,
    tidying,
)
from redis_lock_decorators._flow.self_waits import refuse_interrupted, refuse_own_block
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, Until
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules.redaction import described, safe_text
from redis_lock_decorators.errors import LockUnconfirmedError, shown

#: How to wait for a busy lock.
WaitStrategy = Literal["steady", "poll", "queue", "cohort"]

#: Seconds to try to undo an acquisition on a server that has just failed to answer.
UNDO_TIME = 0.25
#: Stands for a refusal before the first try. A claim keeps it while another claim of this process
#: is ahead of it: it joins the queue without trying.
NOT_TRIED = Refusal(None)


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
    try:
        if strategy == "cohort" and queues and not claim.is_special():
            compete = partial(_compete, port, claim, stop, delta, strategy, queues)
            try_last = partial(_try_last, port, claim, stop)
            refusal = await acquire_in_cohort(port, claim, compete, try_last, stop)
        else:
            refusal = await _compete(port, claim, stop, delta, strategy, queues)
        if refusal is None:
            if claim.process != fork.process_id:
                refuse_fork(claim)
            claim.entered = port.now()
            port.held.add(claim, port.now)
            if claim.observer is not None:
                claim.observer.acquired(claim, claim.entered)
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
    if refusal is not None and claim.observer is not None:
        _report_refusal(claim, claim.observer, port.now())
    is_queued = claim.queue_entry is not None and claim.has_asked
    if refusal is not None and (is_queued or claim.deadline > -math.inf):
        await undo(port, claim)  # it may be granted later, or was granted too late
    claim.state = ACTIVE if refusal is None else ENDED
    if refusal is not None and claim.unconfirmed:
        raise unconfirmed(claim)
    return refusal


def _report_refusal(claim: Claim, observer: Observer, now: float) -> None:
    if claim.unconfirmed:
        observer.failed(claim, now, LockUnconfirmedError.__name__)
    else:
        observer.timed_out(claim, now)


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
    if cause is not None or claim.was_held():
        claim.sends_text = True  # a server that is silent now may run it later
    is_outage = isinstance(cause, Exception) and is_unknown(port, cause)
    until = tidying(port, UNDO_TIME if is_outage else ROUND_TRIP)
    once = partial(release_keys, port, claim, "script")
    undo_keys = once if is_outage else partial(tidy, port, once)  # an outage was waited out already
    await port.shield(partial(_end_and_undo, port, claim, undo_keys, until, notify), ROUND_TRIP)


async def _end_and_undo(
    port: Port,
    claim: Claim,
    undo_keys: Callable[[Until], Awaitable[Refusal | None]],
    until: Until,
    notify: Notify | None,
) -> None:
    """End the claim, but not if an exception from outside cuts this short: then it is repeated."""
    try:
        if claim.was_held():
            close(port, claim)
            await release_and_log(port, claim, partial(undo_keys, until), notify)
        else:
            end(port, claim)
            await undo_keys(until)
    except BaseException as error:
        if isinstance(error, EXHAUSTED) or not port.is_outcome(error):
            claim.reopen()
        raise


async def _compete(
    port: QueuePort, claim: Claim, stop: float, delta: float, strategy: WaitStrategy, queues: bool
) -> Refusal | None:
    if not claim.identifier:
        claim.replace_identifier()
    if not queues:
        attempt = partial(try_once, port, claim, stop=stop)
        refusal = await persist(port, attempt, stop)
        return refusal and await _poll(
            port, claim, attempt, refusal, stop, _pauses(port, strategy, delta)
        )
    key, refusal = claim.keys[0], NOT_TRIED
    try:
        if port.arrivals.join(key, claim) and not _queues_first(port, key, claim):
            started = port.now()  # like ``persist``, inlined as free locks are acquired here
            until = first_until(started, stop)
            try:
                refusal = await try_once(port, claim, until, stop)
            except Exception as error:
                if not decide_repeat(port, error, started):
                    raise
                attempt = partial(try_once, port, claim, stop=stop)
                refusal = await repeat(port, attempt, until, stop, error)
            if refusal is None:
                return None
        attempt = partial(try_once, port, claim, stop=stop)
        if refusal is TOO_LATE:  # the key may still be ours; in the queue, others would be first
            refusal = await persist(port, attempt, stop)
        pauses = delays.growing(delta, port.random)
        return refusal and await _queue(port, claim, attempt, refusal, stop, pauses)
    finally:
        port.arrivals.leave(key, claim)


async def _try_last(port: Port, claim: Claim, stop: float) -> Refusal | None:
    if not claim.identifier:
        claim.replace_identifier()
    return await persist(port, partial(try_once, port, claim, stop=stop), stop)


def _pauses(port: Port, strategy: WaitStrategy, delta: float) -> Iterator[float]:
    return (delays.waiting if strategy == "steady" else delays.growing)(delta, port.random)


def _queues_first(port: QueuePort, key: bytes, claim: Claim) -> bool:
    """Whether the first waiter of this process joins the queue without trying the lock before.

    That acquires a free lock by one request too. If it tried before, waiters that arrived later
    would be ahead of it in the queue by the time it is refused.
    """
    return port.is_subscribed(key) and not claim.is_special()


async def _queue(
    port: QueuePort,
    claim: Claim,
    attempt: Try,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Wait in the queue; poll while no messages can be received."""
    last: Refusal | None = refusal
    while last is not None:
        try:
            return await wait_in_queue(port, claim, attempt, last, stop, pauses)
        except NotificationsUnavailable as error:
            await _leave_queue(port, claim, stop)
            last = await _poll(port, claim, attempt, last, min(stop, error.until), pauses)
        except Exception as error:
            if not is_forbidden(port, error):
                raise
            _log_polling(claim, error)
            await _leave_queue(port, claim, stop)
            if last is NOT_TRIED:
                last = await persist(port, attempt, stop)
            last = last and await _poll(port, claim, attempt, last, stop, pauses)
        if port.now() >= stop:
            break
    return last


def _log_polling(claim: Claim, error: Exception) -> None:
    log.info(
        "polling for lock %s, as its queue is forbidden (%s)",
        *(shown(claim.lock_name), described(error)),
    )


async def _leave_queue(port: Port, claim: Claim, stop: float) -> None:
    """Leave the queue, or forget the queue entry if the user has no right to remove it."""
    try:
        await persist(port, partial(leave_queue, port, claim), stop)
    except Exception as failure:
        if not is_forbidden(port, failure):
            raise
        claim.queue_entry = None  # polling finds a lock that is granted to the entry


async def _poll(
    port: Port,
    claim: Claim,
    attempt: Try,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Try again until ``stop``; the last refusal, or None when held."""
    last: Refusal | None = refusal
    if claim.observer is not None:
        claim.observer.polls()
    while last is not None and (left := stop - port.now()) > 0:
        refuse_interrupted(port, claim, last.holder)
        await port.sleep(min(next(pauses), left))
        last = await persist(port, attempt, stop)
    return last
