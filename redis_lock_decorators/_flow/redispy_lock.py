"""What redis-py's ``Lock`` needs in addition to a lease: no expiry, and tokens of the caller."""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn

from redis_lock_decorators._flow import release as releases
from redis_lock_decorators._flow.acquire import acquire as acquire_claim
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.identifiers import GOT_LAST
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.requests import Refusal, ask, is_slot_moving
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._flow.timeouts import is_repeated
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._rules.keys import companion, with_notes, with_queue
from redis_lock_decorators.errors import LockError, LockNotOwnedError, shortened, shown

#: The lease, in seconds, of a lock without expiry until its holder knows that it holds it.
PROVISIONAL = 10.0
#: Milliseconds for which it is recorded who got a token, if the lock may be held for any time.
LONGEST_RECORD = 86_400_000
#: The same after the end of any other lock, for a release that comes late.
RECORDED_LATER = 3_600_000
#: In place of a refusal by the server: the lease ended before the request could be sent.
TOO_LATE = Refusal(None)


class AcquireRequest(NamedTuple):
    """The arguments of one ``acquire``.

    Attributes:
        claim: the claim, which has a random identifier.
        wait: seconds to wait; 0 tries once.
        sleep: seconds between two tries, on average.
        token: the final identifier of the lock; None for the claim's own.
        endless: the lock has no expiry once it is held.
        renews: the lock is renewed, so that it may be held for longer than its lease.
    """

    claim: Claim
    wait: float
    sleep: float
    token: str | None
    endless: bool
    renews: bool = False

    @property
    def record_ms(self) -> int:
        """For how long Redis records who got the token, in milliseconds: it may be held then."""
        lasts = self.endless or self.renews
        return LONGEST_RECORD if lasts else self.claim.expire_ms + RECORDED_LATER


async def acquire(port: QueuePort, request: AcquireRequest) -> bool:
    """Acquire the lock; False if it was not free in time.

    It is acquired with a random identifier and an expiry, so that a request that is sent twice,
    lost or late does no harm. Only when it is known to be held, it gets the final identifier and
    expiry.
    """
    claim = request.claim
    stop = port.now() + request.wait
    is_settled = request.token is None and not request.endless
    while True:
        claim.clock = None if is_settled else Clock()
        left = max(0.0, stop - port.now())
        if await acquire_claim(port, claim, left, request.sleep, "queue") is not None:
            return False
        # With redis-py's ``Lock`` a holder may wait for its own lock, until that expires.
        if port.held.get(claim.keys[0]) is claim:
            del port.held[claim.keys[0]]
        if is_settled:
            return True
        claim.entered = -math.inf  # until it has its final identifier and expiry
        if await _settle(port, request):
            claim.entered = port.now()
            return True
        claim.replace_identifier()
        claim.deadline, claim.state = -math.inf, ACTIVE


async def release(port: Port, claim: Claim) -> None:
    """Release a held lock; can be called again while the outcome is unknown.

    Raises:
        LockLostError: another client holds it by now, or none.
        LockNotOwnedError: it belongs to the process that this one was forked from.
    """
    if claim.deadline == -math.inf:
        claim.deadline = math.inf  # the token was set by the caller: its expiry is not known here
    try:
        await releases.release(port, claim, "script")
    except BaseException as error:
        if not port.is_outcome(error):
            claim.reopen()
        raise


async def is_owned(port: Port, claim: Claim | None) -> bool:
    """Whether Redis says that the claim is held."""
    if claim is None or not claim.is_of_this_process():
        return False
    return await holders(port, claim.keys) == [claim.identifier]


async def is_locked(port: Port, key: bytes) -> bool:
    """Whether Redis says that any client holds the lock."""
    return (await holders(port, (key,))) != [None]


async def refuse_unheld(port: Port, lock_name: str, key: bytes) -> NoReturn:
    """Raise the error for a lock that the caller never acquired, or has released.

    Raises:
        LockNotOwnedError: another client holds it.
        LockError: no client holds it.
    """
    (holder,) = await holders(port, (key,))
    if holder is None:
        raise LockError(f"lock {shown(lock_name)} is not locked", lock_name)
    other = shortened(holder) or "another client"
    why = f"{other} holds it, acquired elsewhere (thread_local=False shares a token)"
    raise LockNotOwnedError(lock_name, holder=holder, why=why)


async def _settle(port: QueuePort, request: AcquireRequest) -> bool:
    """Set the final identifier and expiry of a held lock; False if it was lost before."""
    claim = request.claim
    name = request.token or claim.identifier
    final = [name]
    record = (request.record_ms,) if claim.shares_identifier else ()
    latest = claim.clock.latest(port.now(), claim.duration) if claim.clock is not None else 0

    sent: list[str] = []

    async def attempt(until: float) -> Refusal | None:
        nonlocal latest
        details = (name, int(request.endless))
        refusal = await _send_settle(port, claim, *details, latest, *record, until=until, sent=sent)
        if refusal is None or refusal.free_in is None:
            return refusal
        # It is ours, but its end in Redis is later than could be known. Only this claim learns it.
        latest = round(1000 * refusal.free_in)
        return await _send_settle(port, claim, *details, latest, *record, until=until, sent=sent)

    try:
        refusal = await with_repeats(port, attempt, claim.deadline)
        if refusal is None and port.now() < claim.deadline:
            claim.identifier = name
            claim.deadline = math.inf if request.endless else claim.deadline
            return True
        # Who holds it by the final identifier is another claim, unless an earlier request has run.
        if refusal is not None and not (refusal is TOO_LATE and sent):
            final = []
        await _unsettle(port, request, final)
    except BaseException as error:
        await _unsettle(port, request, final if sent else [], error)
        raise
    return False


async def _send_settle(
    port: Port, claim: Claim, *details: int | str, until: float, sent: list[str]
) -> Refusal | None:
    """Send the request; ``sent`` gets its name, to tell a repetition from the first one.

    While its slot is moving the lock is not granted to a waiter, and no script may touch its key
    and the record together. Then only the time tells that it is this claim's: what is sent after
    its lease might take the lock of another with the same identifier.
    """
    if claim.has_queued or claim.shares_identifier:
        keys = (with_notes if claim.shares_identifier else with_queue)(claim.keys)
        try:
            sent.append("settle")
            return await ask(port, "settle", claim, keys, *details, until=until)
        except Exception as error:
            if not is_slot_moving(port, error):
                raise
            sent.pop()
    if claim.shares_identifier:
        if port.now() >= claim.deadline:
            return TOO_LATE
        claim.is_unrecorded = not await _is_recorded(port, claim, details[-1], until)
        if port.now() >= claim.deadline:
            return TOO_LATE
        details = (*details[:-1], "repeated" if sent else "first")
    sent.append("settle")
    return await ask(port, "settle", claim, claim.keys, *details, until=until)


async def _is_recorded(port: Port, claim: Claim, record_ms: int | str, until: float) -> bool:
    """Record who gets the identifier by requests of their own, as the keys are on two nodes.

    Before the lock gets it: whoever undoes that must be able to tell whose lock it is.
    """
    record = companion(claim.keys[0], b"released")
    try:
        await port.send("ZREMRANGEBYSCORE", record, -1, -1, until=until)
        if port.now() < claim.deadline:
            await port.send("ZADD", record, -1, GOT_LAST + claim.identifier, until=until)
            await port.send("PEXPIRE", record, record_ms, until=until)
    except Exception as error:
        # A lock that cannot be recorded is acquired all the same, as the second attempt shows.
        if not port.is_outcome(error) or not (port.lacks(error) or is_repeated(until)):
            raise
        return False
    return True


async def _unsettle(
    port: Port, request: AcquireRequest, final: list[str], cause: BaseException | None = None
) -> None:
    """Release what is held by the first identifier, or by the ``final`` one."""
    claim = request.claim
    names = [claim.identifier]
    # Other clients may use the token too, so only while the lock must be this claim's.
    if request.token is not None and (request.endless or port.now() < claim.deadline):
        names += final
    failure: BaseException | None = None
    for claim.identifier in names:  # another thread releases the last one if this stack is full
        claim.released_keys = ()  # by the other identifier
        claim.may_be_unsettled = claim.shares_identifier and claim.identifier in final
        try:
            await undo(port, claim, cause)
        except BaseException as error:  # also a second cancellation: either may hold the lock
            failure = error
    if failure is not None:
        raise failure
    claim.maybe_released, claim.may_be_unsettled = (), False
