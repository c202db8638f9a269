"""What redis-py's ``Lock`` does beyond a lease: no end, a token of one's own, an end that moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from redis_lock_decorators._flow import acquire as lease
from redis_lock_decorators._flow import losses
from redis_lock_decorators._flow import release as releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.lease_ends import Shortening
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.requests import (
    EXHAUSTED,
    Refusal,
    ask,
    is_torn,
    may_have_run,
)
from redis_lock_decorators._flow.retries import OUTAGE, persist
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators.errors import LockError, LockNotOwnedError, shortened, shown

#: The lease, in seconds, of a lock without an end until its holder knows that it holds it.
PROVISIONAL = 10.0


class AcquireRequest(NamedTuple):
    """What one ``acquire`` asks for.

    Attributes:
        claim: the claim, which is taken by an identifier of its own.
        wait: seconds to wait; 0 tries once.
        sleep: seconds between two tries, on average.
        token: the identifier that the lock is to be known by; None for the claim's own.
        endless: the lock has no end once it is held.
    """

    claim: Claim
    wait: float
    sleep: float
    token: str | None
    endless: bool


async def acquire(port: QueuePort, request: AcquireRequest) -> bool:
    """Take the lock; False if it was not free in time.

    It is taken by a random identifier and for a limited time, so that a request sent twice, lost or
    late does no harm. What the user wants it to be comes after, when it is known to be held.
    """
    claim = request.claim
    stop = port.now() + request.wait
    is_settled = request.token is None and not request.endless
    while True:
        claim.clock = None if is_settled else Clock()
        left = max(0.0, stop - port.now())
        if await lease.acquire(port, claim, left, request.sleep, "queue") is not None:
            return False
        # Here a lock may be waited for by who holds it: its end may come.
        if port.held.get(claim.keys[0]) is claim:
            del port.held[claim.keys[0]]
        if is_settled or await _settle(port, request):
            return True
        claim.replace_identifier()
        claim.deadline, claim.state = -math.inf, ACTIVE


async def release(port: Port, claim: Claim) -> None:
    """Let a held lock go; it can be called again where the outcome is not known.

    Raises:
        LockLostError: it is another's by now, or nobody's.
        LockNotOwnedError: it belongs to the process that this one was forked from.
    """
    if claim.deadline == -math.inf:
        claim.deadline = math.inf  # of a token from elsewhere: its end is not known here
    try:
        await releases.release(port, claim, "script")
    except BaseException as error:
        if not port.is_outcome(error):
            claim.reopen()
        raise


async def adjust(port: Port, claim: Claim, change: Callable[[float], float]) -> None:
    """Let a held lock last ``change(seconds it has left)`` seconds from now, once.

    Raises:
        LockLostError: it is another's by now, or nobody's.
        LockNotOwnedError: it belongs to the process that this one was forked from.
        LockError: it has no end.
    """
    losses.refuse_fork(claim)
    losses.refuse_over(claim)
    stop = port.now() + OUTAGE
    while (sent := port.now()) < stop:
        seen = await persist(port, partial(_left, port, claim), stop)
        if seen.free_in is None:
            raise _lost(port, claim, seen)
        if seen.free_in == math.inf:
            raise LockError(f"lock {shown(claim.lock_name)} has no end to move", claim.lock_name)
        if await _move(port, claim, _Move(claim, seen, change(seen.free_in), sent, stop)):
            return
    raise LockError(f"others keep moving the end of lock {shown(claim.lock_name)}", claim.lock_name)


class _Move:
    """One move of a lock's end. Times of the server are Unix milliseconds.

    Attributes:
        sent: when the look left that found the end, in monotonic seconds.
        wanted: how many seconds the lock is to have from then on.
        stop: until when to try, in monotonic seconds.
        shortens: the wanted end is nearer than the one that was found.
        ends: the end as it was found, the wanted end, and when it is too late to move it.
    """

    __slots__ = ("ends", "sent", "shortens", "stop", "wanted")

    def __init__(
        self, claim: Claim, seen: Refusal, wanted: float, sent: float, stop: float
    ) -> None:
        self.sent, self.wanted, self.stop = sent, wanted, stop
        found = int(seen.holder or 0)
        now = found - round(1000 * (seen.free_in or 0))
        end = now + durations.milliseconds(wanted)
        while end in claim.late_ends:  # from there a late request would take it elsewhere
            end += 1
        self.shortens = end < found
        self.ends = (found, end, now + durations.milliseconds(stop - sent))


async def is_owned(port: Port, claim: Claim | None) -> bool:
    """Whether Redis says that the claim is held."""
    if claim is None or not claim.is_of_this_process():
        return False
    return await holders(port, claim.keys) == [claim.identifier]


async def is_locked(port: Port, key: bytes) -> bool:
    """Whether Redis says that anybody holds the lock."""
    return (await holders(port, (key,))) != [None]


async def refuse_unheld(port: Port, lock_name: str, key: bytes) -> NoReturn:
    """Raise the error for a lock that the caller never acquired, or has let go.

    Raises:
        LockNotOwnedError: another holds it.
        LockError: nobody does.
    """
    (holder,) = await holders(port, (key,))
    if holder is None:
        raise LockError(f"lock {shown(lock_name)} is not locked", lock_name)
    who = shortened(holder) or "another"
    why = f"{who} holds it, acquired elsewhere (thread_local=False shares a token)"
    raise LockNotOwnedError(lock_name, holder=holder, why=why)


async def _settle(port: QueuePort, request: AcquireRequest) -> bool:
    """Give a lock that is held its last form; False if it was lost before."""
    claim = request.claim
    name = request.token or claim.identifier

    latest = claim.clock.latest(port.now(), claim.duration) if claim.clock is not None else 0

    async def attempt(until: float) -> Refusal | None:
        nonlocal latest
        details = (name, int(request.endless))
        refusal = await _give_form(port, claim, *details, latest, until=until)
        if refusal is None or refusal.free_in is None:
            return refusal
        # It is ours, but ends later than could be known here. Nobody else is told this end.
        latest = round(1000 * refusal.free_in)
        return await _give_form(port, claim, *details, latest, until=until)

    try:
        refusal = await persist(port, attempt, claim.deadline)
        if refusal is not None or port.now() >= claim.deadline:
            await _unsettle(port, request)
            return False
        claim.identifier = name
        claim.deadline = math.inf if request.endless else claim.deadline
    except BaseException as error:
        await _unsettle(port, request, error)
        raise
    return True


async def _give_form(port: Port, claim: Claim, *details: int | str, until: float) -> Refusal | None:
    if claim.has_queued:
        try:
            return await ask(port, "settle", claim, with_queue(claim.keys), *details, until=until)
        except Exception as error:
            if not is_torn(port, error):  # while its slot is moving nobody is handed it
                raise
    return await ask(port, "settle", claim, claim.keys, *details, until=until)


async def _unsettle(
    port: Port, request: AcquireRequest, cause: BaseException | None = None
) -> None:
    """Let go what is held by either identifier."""
    claim = request.claim
    names = [claim.identifier]
    # Others may use the token too: by it only while the lock must be this claim's.
    if request.token is not None and (request.endless or port.now() < claim.deadline):
        names.append(request.token)
    exhausted: BaseException | None = None
    for claim.identifier in names:  # the last is what another thread undoes if there is no room
        try:
            await lease.undo(port, claim, cause)
        except EXHAUSTED as error:
            exhausted = error
    if exhausted is not None:
        raise exhausted
    claim.maybe_released = ()


async def _left(port: Port, claim: Claim, until: float) -> Refusal:
    """The lock's end in place of the holder, and the seconds left; None if it is not ours."""
    found = await ask(port, "time_left", claim, claim.keys, until=until)
    return found or Refusal(None)


async def _move(port: Port, claim: Claim, move: _Move) -> bool:
    """Move the end from where it was seen; False if another request has moved it since."""
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
    # It may be there already: by an earlier copy of this request, or by another's that wanted that.
    if refusal is not None and (refusal.free_in != 0 or not is_sent):
        if nearer is not None and is_sent:
            claim.maybe_shortened(nearer, port.now())  # by a copy; then another moved the end
        elif nearer is not None:
            claim.cancel_shortening(nearer)
        return False
    losses.refuse_over(claim)
    if nearer is not None:
        claim.confirm_shortened(nearer, port.now())
    else:
        claim.add_end(move.sent, move.wanted)
    return True


def _shorten(port: Port, claim: Claim, move: _Move) -> Shortening:
    """Believe in the nearer end from now on."""
    # Until no copy can be run any more: a renewal may find the old end far enough meanwhile.
    long = move.stop - move.sent
    by = port.now() + long + lease_times.drift_margin(long)
    return claim.shorten(by, move.sent, move.wanted)


def _lost(port: Port, claim: Claim, refusal: Refusal) -> LockNotOwnedError:
    """The error for a lock that Redis says is not ours, if it was not let go meanwhile."""
    losses.refuse_over(claim)
    return losses.lost(port, claim, refusal)
