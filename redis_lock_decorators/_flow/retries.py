"""Repeat requests whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import NeverSent, is_unknown
from redis_lock_decorators._flow.timeouts import (
    ROUND_TRIP,
    TimeLimits,
    limit_after_failure,
    repeated,
)
from redis_lock_decorators._rules import delays

T = TypeVar("T")
#: Called with the error of an attempt and the time at which that began.
Failed = Callable[[Exception, float], object]

#: Seconds after which a server that does not answer is given up: longer than a failover takes.
OUTAGE = 5.0
#: Longest time, in seconds, for a cleanup to wait in the send queue of a server that answers: when
#: many waiters give up at once, their cleanups queue up.
CLEANUP = 30.0


async def with_repeats(
    port: Port,
    attempt: Callable[[float], Awaitable[T]],
    end: float,
    failed: Failed | None = None,
) -> T:
    """Repeat ``attempt(until)`` while its outcome is unknown, until ``end`` or for an outage.

    All requests are idempotent. ``failed`` is called with the error of every attempt.
    """
    started = port.now()
    until = first_until(started, end)
    try:
        return await attempt(until)
    except Exception as error:
        if not decide_repeat(port, error, started, failed):
            raise
        return await repeat(port, attempt, until, end, error, failed)


def first_until(started: float, end: float) -> float:
    """The time limit of a first attempt at ``started``; no attempt starts after ``end``."""
    until = started + OUTAGE
    if end <= until:
        least = started + ROUND_TRIP
        return end if end > least else least
    limit = float.__new__(
        TimeLimits, until
    )  # not by TimeLimits(...), for speed: every request does this
    limit.end, limit.is_repeated = end, False
    return limit


def decide_repeat(
    port: Port, error: Exception, started: float, failed: Failed | None = None
) -> bool:
    """Call ``failed`` with the error of an attempt; decide whether to ``repeat`` that."""
    if failed is not None and port.is_outcome(error):
        failed(error, started)
    return is_unknown(port, error)


async def clean_up(port: Port, attempt: Callable[[float], Awaitable[T]], until: TimeLimits) -> T:
    """Repeat ``attempt(until)``, a cleanup, while its outcome is unknown.

    On a server that is silent or down, not past ``until``, as of ``cleanup_limits``: keys expire.
    """
    started = port.now()
    try:
        return await attempt(until)
    except Exception as error:
        if not is_unknown(port, error):
            raise
        return await repeat(port, attempt, until, until.end, error, None, until - started)


def cleanup_limits(port: Port, seconds: float) -> TimeLimits:
    """The time limits of a cleanup, which takes so many seconds on a silent server."""
    now = port.now()
    return TimeLimits(now + seconds, now + CLEANUP)


async def repeat(
    port: Port,
    attempt: Callable[[float], Awaitable[T]],
    until: float,
    end: float,
    error: Exception,
    failed: Failed | None = None,
    outage: float = OUTAGE,
) -> T:
    """Repeat an attempt whose ``error`` left its outcome unknown.

    Gives up after ``outage`` seconds without a reply.
    """
    until = repeated(limit_after_failure(until, end, error, outage))
    stop = min(end, until)
    try:
        for pause in delays.recovering(port.random):
            now = port.now()
            # The first repetition has no pause, and is always tried: a connection may be stale.
            if now >= until or (pause > 0 and now + pause >= stop):
                break
            await port.sleep(pause)
            began = port.now()
            try:
                return await attempt(until)
            except Exception as failure:
                if not port.is_outcome(failure):
                    raise
                if failed is not None:
                    failed(failure, began)
                # Of several errors, raise one that leaves the outcome unknown, if there is one.
                if port.was_sent(failure) or not port.was_sent(error):
                    error = failure
                if not is_unknown(port, failure):
                    break
        if isinstance(error, NeverSent) and port.now() < end:
            return await with_repeats(port, attempt, end, failed)  # no outage: others get replies
        raise error
    finally:
        del error  # its traceback refers to this frame: a reference cycle
