"""Move the end of a held lock: ``extend`` and ``reacquire`` of redis-py's ``Lock``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from redis_lock_decorators._flow.claim import Claim, refuse_fork
from redis_lock_decorators._flow.lease_ends import Shortening
from redis_lock_decorators._flow.losses import record_loss, refuse_over
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import FROM_MASTER, Refusal, ask, may_have_run
from redis_lock_decorators._flow.retries import OUTAGE, clean_up, cleanup_limits, with_repeats
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators.errors import LockError, LockNotOwnedError, shown


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
        seen = await with_repeats(port, partial(_left, port, claim), stop)
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
        nearer: the earlier end, as the claim records it; None if it is none.
        is_sent: the server may have run the request, or a copy of it, without a reply.
    """

    __slots__ = ("ends", "is_sent", "nearer", "sent", "shortens", "stop", "wanted")

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
        self.nearer: Shortening | None = None
        self.is_sent = False
        self.ends = (found, end, now + durations.milliseconds(stop - sent))


async def _left(port: Port, claim: Claim, until: float) -> Refusal:
    """The lock's end as ``holder``, and the seconds left; None if it is not ours."""
    found = await ask(port, "time_left", claim, claim.keys, FROM_MASTER, until=until)
    return found or Refusal(None)


async def _move(port: Port, claim: Claim, move: _Move) -> bool:
    """Move the end from where it was found; False if another request has moved it since."""

    async def attempt(until: float) -> Refusal | None:
        return await ask(port, "adjust", claim, claim.keys, *move.ends, until=until)

    def failed(error: Exception, sent: float) -> None:
        if may_have_run(port, error):
            move.is_sent = True
            claim.late_ends += move.ends[:1]

    async def complete() -> None:
        move.is_sent = True
        _conclude(
            port, claim, move, await clean_up(port, attempt, cleanup_limits(port, ROUND_TRIP))
        )

    move.is_sent = port.may_resend
    if move.shortens:
        move.nearer = _nearer(port, move)
    try:
        if move.nearer is not None:
            claim.shorten(move.nearer)
        return _conclude(port, claim, move, await with_repeats(port, attempt, move.stop, failed))
    except BaseException as error:
        # The earlier end was assumed: without a reply the lease would be lost then.
        if move.nearer is not None and not port.is_outcome(error):
            await port.shield(complete, ROUND_TRIP)
        raise


def _conclude(port: Port, claim: Claim, move: _Move, refusal: Refusal | None) -> bool:
    """Record what a reply says; False if another request has moved the end."""
    nearer = move.nearer
    if refusal is not None and refusal.free_in is None:
        raise _lost(port, claim, refusal)
    # It may have the wanted end already: by a copy of this request, or by another request.
    if refusal is not None and (refusal.free_in != 0 or not move.is_sent):
        if nearer is not None and move.is_sent:
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


def _nearer(port: Port, move: _Move) -> Shortening:
    """The earlier end, to be assumed as soon as it may be requested."""
    # Until no copy can be run any more: a renewal that finds the later end does not move it.
    long = move.stop - move.sent
    by = port.now() + long + lease_times.drift_margin(long)
    end = lease_times.deadline(move.sent, move.wanted)
    return Shortening(end, move.wanted, move.sent, by)


def _lost(port: Port, claim: Claim, refusal: Refusal) -> LockNotOwnedError:
    """The error for a lock that is not ours in Redis, unless it was released meanwhile."""
    refuse_over(claim)
    return record_loss(port, claim, refusal)
