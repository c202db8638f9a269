"""Move the end of a held lock: ``extend`` and ``reacquire`` of redis-py's ``Lock``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from redis_lock_decorators._flow.claim import Claim, refuse_fork
from redis_lock_decorators._flow.lease_ends import Shortening
from redis_lock_decorators._flow.losses import record_loss, refuse_over
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, ask, may_have_run
from redis_lock_decorators._flow.retries import OUTAGE, persist
from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators.errors import LockError, LockNotOwnedError, shown

#: Argument of the script ``time_left``: a replica must not answer.
FROM_MASTER = 1


class NoExpiryError(LockError):
    """A lock is held, but does not expire."""


async def adjust(port: Port, claim: Claim, change: Callable[[float], float]) -> None:
    """Give a held lock ``change(seconds it has left)`` seconds from now, once.

    Raises:
        LockLostError: another client holds it by now, or none.
        LockNotOwnedError: it belongs to the process that this one was forked from.
        NoExpiryError: it has no expiry.
    """
    refuse_fork(claim)
    refuse_over(claim)
    stop = port.now() + OUTAGE
    while (sent := port.now()) < stop:
        seen = await persist(port, partial(_left, port, claim), stop)
        if seen.free_in is None:
            raise _lost(port, claim, seen)
        if seen.free_in == math.inf:
            raise NoExpiryError(f"lock {shown(claim.lock_name)} has no expiry", claim.lock_name)
        if await _move(port, claim, _Move(claim, seen, change(seen.free_in), sent, stop)):
            return
    raise LockError(
        f"other requests keep changing the expiry of lock {shown(claim.lock_name)}", claim.lock_name
    )


class _Move:
    """One move of a lock's end.

    Attributes:
        sent: when the request was sent that found the end, in monotonic seconds.
        wanted: how many seconds from then on the lock should have.
        stop: until when to try, in monotonic seconds.
        shortens: the wanted end is earlier than the one found.
        ends: the end found, the wanted end, and until when the server may move it, in Unix
            milliseconds of the server's clock.
    """

    __slots__ = ("ends", "sent", "shortens", "stop", "wanted")

    def __init__(
        self, claim: Claim, seen: Refusal, wanted: float, sent: float, stop: float
    ) -> None:
        self.sent, self.wanted, self.stop = sent, wanted, stop
        found = int(seen.holder or 0)
        now = found - round(1000 * (seen.free_in or 0))
        end = now + durations.milliseconds(wanted)
        while end in claim.late_ends:  # a late request might move the lock from this end
            end += 1
        self.shortens = end < found
        self.ends = (found, end, now + durations.milliseconds(stop - sent))


async def _left(port: Port, claim: Claim, until: float) -> Refusal:
    """The lock's end as ``holder``, and the seconds left; None if it is not ours."""
    found = await ask(port, "time_left", claim, claim.keys, FROM_MASTER, until=until)
    return found or Refusal(None)


async def _move(port: Port, claim: Claim, move: _Move) -> bool:
    """Move the end from where it was found; False if another request has moved it since."""
    is_sent = port.may_resend
    nearer = _shorten(port, claim, move) if move.shortens else None

    async def attempt(until: float) -> Refusal | None:
        return await ask(port, "adjust", claim, claim.keys, *move.ends, until=until)

    def failed(error: Exception, sent: float) -> None:
        nonlocal is_sent
        if may_have_run(port, error):
            is_sent = True
            claim.late_ends += move.ends[:1]

    refusal = await persist(port, attempt, move.stop, failed)
    if refusal is not None and refusal.free_in is None:
        raise _lost(port, claim, refusal)
    # It may have the wanted end already: by a copy of this request, or by another request.
    if refusal is not None and (refusal.free_in != 0 or not is_sent):
        if nearer is not None and is_sent:
            claim.maybe_shortened(nearer, port.now())  # by a copy, before another request
        elif nearer is not None:
            claim.cancel_shortening(nearer)
        return False
    refuse_over(claim)
    if nearer is not None:
        claim.confirm_shortened(nearer, port.now())
    else:
        claim.add_end(move.sent, move.wanted)
    return True


def _shorten(port: Port, claim: Claim, move: _Move) -> Shortening:
    """Assume the earlier end from now on."""
    # Until no copy can be run any more: a renewal that finds the later end does not move it.
    long = move.stop - move.sent
    by = port.now() + long + lease_times.drift_margin(long)
    return claim.shorten(by, move.sent, move.wanted)


def _lost(port: Port, claim: Claim, refusal: Refusal) -> LockNotOwnedError:
    """The error for a lock that is not ours in Redis, unless it was released meanwhile."""
    refuse_over(claim)
    return record_loss(port, claim, refusal)
