"""Taking a lock: try, wait, try again; leave nothing behind on any way out."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Literal

from redis_lock_decorators._flow.attempt import (
    LATE,
    Unconfirmed,
    refuse_unnumberable,
    try_once,
    unconfirmed,
)
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED
from redis_lock_decorators._flow.error_notes import note
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.claim_entry import Attempt
from redis_lock_decorators._flow.queue.cohort import settle
from redis_lock_decorators._flow.queue.cohort_wait import acquire as acquire_in_cohort
from redis_lock_decorators._flow.queue.entry_requests import leave_queue
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.wait import NotificationsUnavailable
from redis_lock_decorators._flow.queue.wait import wait as wait_in_queue
from redis_lock_decorators._flow.release import end, release_keys
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    ROUND_TRIP,
    NeverSent,
    Refusal,
    first_until,
    groups,
    is_forbidden,
    is_to_repeat,
    is_unknown,
    persist,
    repeat,
    tidy,
    tidying,
)
from redis_lock_decorators._flow.self_waits import refuse_interrupted, refuse_own_block
from redis_lock_decorators._flow.timeouts import Until
from redis_lock_decorators._rules import delays
from redis_lock_decorators.errors import shown

#: How a busy lock is waited for.
Way = Literal["steady", "poll", "queue", "cohort"]

#: Seconds to try to tidy up on a server that has just failed to answer.
PARTING = 0.25
#: A lock that others wait for here already.
AWAITED = Refusal(None)


async def acquire(
    port: QueuePort, claim: Claim, wait: float, delta: float, way: Way = "steady"
) -> Refusal | None:
    """Take all keys of the claim or none, within ``wait`` seconds. None: they are held.

    A busy lock is waited for in its "queue", or there together with others of this process (its
    "cohort"), or looked at about every ``delta`` seconds, at a "steady" pace or ("poll") less and
    less often. Several names are never waited for in a queue.

    Raises:
        LockError: this thread or task is in a block of the lock, or takes it or lets it go beneath
            a signal handler that runs here, and would wait for itself.
        LockUnconfirmedError: at the last try it was free, but too few replicas knew of it in time.
    """
    if claim.fencing:
        refuse_unnumberable(port, claim)
    if wait > 0 and port.held:
        refuse_own_block(port, claim)
    began = port.now()
    stop = began + wait
    queues = way in ("queue", "cohort") and wait > 0 and len(claim.keys) == 1
    try:
        if way == "cohort" and queues and not claim.is_special():
            compete = partial(_compete, port, claim, stop, delta, way, queues)
            refusal = await acquire_in_cohort(port, claim, compete, stop)
        else:
            refusal = await _compete(port, claim, stop, delta, way, queues)
        if refusal is None:
            claim.entered = port.now()
            port.held.note(claim, port.now)
        elif type(refusal) is Unconfirmed:
            raise unconfirmed(claim, refusal)
    except NeverSent as error:
        if len(groups(port, claim)) > 1:  # others of its keys may have been taken
            await undo(port, claim)
        refusal = Refusal(None, why=str(error))
    except BaseException as error:
        note(port, claim, error, "acquired", began)
        await undo(port, claim, error)
        raise
    if refusal is not None and (claim.deadline > -math.inf or claim.queue_entry is not None):
        await undo(port, claim)  # it may be handed over, or was granted too late to be believed
    claim.state = ACTIVE if refusal is None else ENDED
    return refusal


async def undo(port: Port, claim: Claim, cause: BaseException | None = None) -> None:
    """Let go what a failed acquisition may hold: a request may be run though no reply came."""
    if not claim.is_of_this_process():
        return
    settle(claim)
    if not claim.identifier:  # it was passed on, or Redis was not asked for it
        end(port, claim)
        return
    cut = isinstance(cause, Exception) and is_unknown(port, cause)
    until = tidying(port, PARTING if cut else ROUND_TRIP)
    once = partial(release_keys, port, claim, "script")
    leave = once if cut else partial(tidy, port, once)  # if cut it was asked again and again
    await port.shield(partial(_end_and_let_go, port, claim, leave, until))


async def _end_and_let_go(
    port: Port, claim: Claim, leave: Callable[[Until], Awaitable[object]], until: Until
) -> None:
    """Be over; unless an exception from outside cuts that short, so that it is done again."""
    try:
        end(port, claim)
        await leave(until)
    except BaseException as error:
        if isinstance(error, EXHAUSTED) or not port.is_outcome(error):
            claim.reopen()
        raise


async def _compete(
    port: QueuePort, claim: Claim, stop: float, delta: float, way: Way, queues: bool
) -> Refusal | None:
    if not claim.identifier:
        claim.replace_identifier()
    attempt = partial(try_once, port, claim, stop=stop)
    if not queues:
        refusal = await persist(port, attempt, stop)
        return refusal and await _poll(
            port, claim, attempt, refusal, stop, _pauses(port, way, delta)
        )
    key, refusal = claim.keys[0], AWAITED
    try:
        if port.arrivals.join(key, claim) and not _lines_up_first(port, key, claim):
            started = port.now()  # as by ``persist``, whose call each free lock would wait for
            until = first_until(started, stop)
            try:
                refusal = await try_once(port, claim, until, stop)
            except Exception as error:
                if not is_to_repeat(port, error, started):
                    raise
                refusal = await repeat(port, attempt, until, stop, error)
            if refusal is LATE:  # ours yet, maybe: to line up now would be behind all others
                refusal = await persist(port, attempt, stop)
        if refusal is None:
            return None
        return await _queue(port, claim, attempt, refusal, stop, _pauses(port, way, delta))
    finally:
        port.arrivals.leave(key, claim)


def _pauses(port: Port, way: Way, delta: float) -> Iterator[float]:
    return (delays.waiting if way == "steady" else delays.growing)(delta, port.random)


def _lines_up_first(port: QueuePort, key: bytes, claim: Claim) -> bool:
    """Whether the first to come lines up at once too, as those behind it do.

    To line up takes a free lock by as many requests. If it tried the lock before, those behind it
    would all have their places by the time it is refused.
    """
    return port.is_subscribed(key) and not claim.is_special()


async def _queue(
    port: QueuePort,
    claim: Claim,
    attempt: Attempt,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Wait in the queue; look from time to time while no word can come."""
    last: Refusal | None = refusal
    while last is not None:
        try:
            return await wait_in_queue(port, claim, attempt, last, stop, pauses)
        except NotificationsUnavailable as deaf:
            await _stop_waiting(port, claim, stop)
            last = await _poll(port, claim, attempt, last, min(stop, deaf.until), pauses)
        except Exception as error:
            if not is_forbidden(port, error):
                raise
            _tell_unqueued(claim, error)
            await _stop_waiting(port, claim, stop)
            if last is AWAITED:  # it was not tried yet
                last = await persist(port, attempt, stop)
            last = last and await _poll(port, claim, attempt, last, stop, pauses)
        if port.now() >= stop:
            break
    return last


def _tell_unqueued(claim: Claim, error: Exception) -> None:
    log.info(
        "lock %s is looked for from time to time, as its queue may not be used (%s: %s)",
        *(shown(claim.lock_name), type(error).__name__, error),
    )


async def _stop_waiting(port: Port, claim: Claim, stop: float) -> None:
    """Wait outside the queue, also where this user may not even leave it."""
    try:
        await persist(port, partial(leave_queue, port, claim), stop)
    except Exception as failure:
        if not is_forbidden(port, failure):
            raise
        claim.queue_entry = None  # what is handed over there will be found to be held


async def _poll(
    port: Port,
    claim: Claim,
    attempt: Attempt,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Try again until ``stop``; the last refusal, or None once held."""
    last: Refusal | None = refusal
    while last is not None and (left := stop - port.now()) > 0:
        refuse_interrupted(port, claim, last.holder)
        await port.sleep(min(next(pauses), left))
        last = await persist(port, attempt, stop)
    return last
