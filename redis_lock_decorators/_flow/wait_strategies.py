"""The ways to wait for a busy lock: polling it, or in its queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from redis_lock_decorators._flow.attempt import (
    TOO_LATE,
    try_once,
)
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.claim_entry import Try
from redis_lock_decorators._flow.queue.entry_requests import leave_queue
from redis_lock_decorators._flow.queue.interrupted_waiters import suspend_interrupted
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.wait import NotificationsUnavailable
from redis_lock_decorators._flow.queue.wait import wait as wait_in_queue
from redis_lock_decorators._flow.requests import (
    Refusal,
    is_forbidden,
)
from redis_lock_decorators._flow.retries import (
    decide_repeat,
    first_until,
    repeat,
    with_repeats,
)
from redis_lock_decorators._flow.self_waits import refuse_interrupted
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.errors import shown

#: How to wait for a busy lock.
WaitStrategy = Literal["steady", "poll", "queue", "cohort"]

#: Stands for a refusal before the first try. A claim keeps it while another claim of this process
#: is ahead of it: it joins the queue without trying.
NOT_TRIED = Refusal(None)


async def compete(
    port: QueuePort, claim: Claim, stop: float, delta: float, strategy: WaitStrategy, queues: bool
) -> Refusal | None:
    if not claim.identifier:
        claim.replace_identifier()
    if not queues:
        attempt = partial(try_once, port, claim, stop=stop)
        refusal = await with_repeats(port, attempt, stop)
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
            refusal = await with_repeats(port, attempt, stop)
        pauses = delays.growing(delta, port.random)
        return refusal and await _queue(port, claim, attempt, refusal, stop, pauses)
    finally:
        port.arrivals.leave(key, claim)


async def try_last(port: Port, claim: Claim, stop: float) -> Refusal | None:
    if not claim.identifier:
        claim.replace_identifier()
    return await with_repeats(port, partial(try_once, port, claim, stop=stop), stop)


def _pauses(port: Port, strategy: WaitStrategy, delta: float) -> Iterator[float]:
    return (delays.waiting if strategy == "steady" else delays.growing)(delta, port.random)


def _queues_first(port: QueuePort, key: bytes, claim: Claim) -> bool:
    """Whether the first waiter of this process joins the queue without trying the lock before.

    That acquires a free lock by one request too. If it tried before, waiters that arrived later
    would be ahead of it in the queue by the time it is refused.
    """
    return port.is_subscribed(key) and not claim.is_fenced_or_confirmed()


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
                last = await with_repeats(port, attempt, stop)
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
        await with_repeats(port, partial(leave_queue, port, claim), stop)
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
    if port.now() < stop:
        await suspend_interrupted(port, claim, refusal.holder, stop)
    while last is not None and (left := stop - port.now()) > 0:
        refuse_interrupted(port, claim, last.holder)
        await port.sleep(min(next(pauses), left))
        last = await with_repeats(port, attempt, stop)
    return last
