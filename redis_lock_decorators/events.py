"""What happens to locks, as events for hooks: ``configure(hooks=[log_events])``.

A hook is a function that is called with each event of the locks that have it. All hooks are called
on one separate thread, one event after the other, in a copy of the context (``contextvars``) in
which the acquisition began. They can neither break nor delay a lock: an exception is logged, and if
hooks are slower than the locks for so long that 10,000 events wait, further events are dropped.

Each acquisition begins with ``Acquiring``. It ends, once, with ``TimedOut``, ``AcquireFailed``, or,
after ``Acquired``, with ``Released``, ``HandedOver`` or ``Lost``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from redis_lock_decorators._rules.rate_limit import RateLimit
from redis_lock_decorators.errors import in_seconds, shown

__all__ = [
    "AcquireFailed",
    "Acquired",
    "Acquiring",
    "HandedOver",
    "LockEvent",
    "Lost",
    "Released",
    "RenewalLate",
    "Renewed",
    "TimedOut",
    "log_events",
]

#: How a lock was acquired: it was free; its release granted it to this waiter in the queue; another
#: thread or task of the process handed it over; or a later try found it free.
Way = Literal["free", "queue", "cohort", "poll"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEvent:
    """What all events have.

    Attributes:
        lock_name: the name that is locked; several names are joined by ", ".
        key: the Redis key; several are joined by ", ".
        label: which locks it is one of, for metrics: the template of ``@redis_lock``, or the name
            of the function if it has none; "RedisLock" for other locks.
        acquisition: the number of the acquisition in this process; the same in all its events.
        at: when it happened, in seconds of a monotonic clock that goes on while the machine is
            suspended.
        time: the same in seconds of ``time.time()``.
    """

    lock_name: str
    key: str
    label: str
    acquisition: int
    at: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquiring(LockEvent):
    """An acquisition begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired(LockEvent):
    """The lock is held.

    Attributes:
        waited: seconds since ``Acquiring``.
        by: "free" (it was free), "queue" (granted after waiting in the queue), "cohort" (handed
            over by another thread or task of the process) or "poll" (found free by a later try).
        fence: the fencing token; None without ``fencing``.
    """

    waited: float
    by: Way
    fence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(LockEvent):
    """The lock was not free in time.

    Attributes:
        waited: seconds since ``Acquiring``.
    """

    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireFailed(LockEvent):
    """The acquisition ended with an exception, such as a broken connection or a cancellation.

    Attributes:
        waited: seconds since ``Acquiring``.
        error: the name of the exception's class.
    """

    waited: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(LockEvent):
    """The lease was renewed.

    Attributes:
        left: how many seconds it would have lasted without that.
        took: seconds from the request to its reply.
    """

    left: float
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalLate(LockEvent):
    """A lease was not renewed when less than half of its time was left. Once until it is renewed.

    Attributes:
        left: how many seconds the lease lasts without renewal.
        error: the last error of the renewal; "" if it was merely slow.
    """

    left: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(LockEvent):
    """The holder handed the lock to another thread or task of its process (``wait="cohort"``).

    A waiter of another process that is granted the lock by a release reports that itself, by
    ``Acquired`` with ``by="queue"``.

    Attributes:
        held: how many seconds the holder had it.
    """

    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(LockEvent):
    """The lease ended before its holder released it.

    Attributes:
        held: seconds since ``Acquired``.
        why: the reason, as in ``LockLostError``.
    """

    held: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(LockEvent):
    """The holder released the lock.

    Attributes:
        held: seconds since ``Acquired``.
        error: the name of the exception's class if the release failed; the lock then expires unless
            it is released again. "" if it succeeded.
    """

    held: float
    error: str


#: Seconds between two warnings of one kind about the locks of one label.
WARNING_PERIOD = 10.0
_log = logging.getLogger("redis_lock_decorators.events")
_warnings = RateLimit(WARNING_PERIOD)


def log_events(event: LockEvent) -> None:
    """Log an event: a hook for ``configure(hooks=[log_events])``.

    The logger is ``redis_lock_decorators.events``. Late renewals and losses are warnings, one per
    label and 10 seconds of each; everything else is logged for debugging.
    """
    match event:
        case RenewalLate(left=left, error=error):
            cause = f" ({error})" if error else ""
            _warn(event, f"is not renewed yet, {in_seconds(left)} before it expires{cause}")
        case Lost(held=held, why=why):
            _warn(event, f"was lost after {in_seconds(held)}: {why}")
        case _ if _log.isEnabledFor(logging.DEBUG):
            _log.debug("lock %s %s", shown(event.lock_name), _described(event))


def _described(event: LockEvent) -> str:
    match event:
        case Acquired(waited=waited, by=by):
            return f"was acquired after {in_seconds(waited)} ({by})"
        case TimedOut(waited=waited):
            return f"was not free within {in_seconds(waited)}"
        case AcquireFailed(waited=waited, error=error):
            return f"was not acquired: {error} after {in_seconds(waited)}"
        case Renewed(left=left, took=took):
            return f"was renewed in {in_seconds(took)}, {in_seconds(left)} before its end"
        case HandedOver(held=held):
            return f"was handed over in this process after {in_seconds(held)}"
        case Released(held=held, error=error):
            failed = f", but the release failed: {error}" if error else ""
            return f"was released after {in_seconds(held)}{failed}"
    return "is being acquired"


def _warn(event: LockEvent, what: str) -> None:
    left_out = _warnings.left_out((type(event), event.label), event.at)
    if left_out is not None:
        more = f" (and {left_out} more such warnings since the last one)" if left_out else ""
        _log.warning("lock %s %s%s", shown(event.lock_name), what, more)
