"""Fallbacks for a release that the server refuses: what was acquired can be released."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from redis_lock_decorators import _lua
from redis_lock_decorators._flow import unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.late_outcomes import completed
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_methods import (
    CANNOT_WATCH,
    by_script,
    native,
    transaction,
)
from redis_lock_decorators._flow.requests import (
    FROM_MASTER,
    Refusal,
    ask,
    is_slot_moving,
    may_have_run,
    unlock,
    worst,
)
from redis_lock_decorators._flow.sent_releases import noting
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, LockError, shown

#: Seconds after a release without a reply in which it may be repeated if others may use the same
#: identifier. The record lasts twice as long, and a request is repeated for a while by itself.
RECORDED = _lua.RECORD_TTL / 2000
#: How often the end of a lock is asked for that another request keeps moving.
MOST_ENDS = 3
#: A function that releases one key until a time.
ReleaseKey = Callable[[Port, Claim, bytes, float], Awaitable[Refusal | None]]


def refuse_unfit_method(port: Port, method: ReleaseMethod) -> None:
    """Refuse a release method that the client lacks, before anything is acquired.

    Raises:
        ConfigurationError: it has no transactions.
    """
    if method == "transaction" and not port.transacts:
        raise ConfigurationError(f"{CANNOT_WATCH}: release by release_method='script'")


async def with_fallbacks(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    work: Callable[[], Awaitable[Refusal | None]],
) -> Refusal | None:
    """Release keys by ``work``, or by another method if the server refuses that.

    A request without a reply is noted for the keys that it may have released, and for no others.
    """
    began = port.now()
    is_unrecorded = began >= claim.recorded_until
    if claim.shares_identifier and is_unrecorded and not claim.got_shared_identifier:
        raise LockError(
            f"whether lock {shown(claim.lock_name)} was released is not known: the reply was lost, "
            "the server has no record of it (any more), and its next holder may have the same "
            "identifier; if no client uses it, release it by force_release() (reset() of "
            "python_redis_lock)",
            claim.lock_name,
        )
    try:
        refusal = await work()
        if refusal is not None:
            claim.release_sent = None
        return refusal
    except Exception as error:
        is_doubtful = _may_end_another(claim, part)
        if is_slot_moving(port, error) and not is_unrecorded:
            claim.release_sent = None
            if port.lacks(error) == "moved key":
                claim.note_maybe_released(part, began)
            whose = await unanswered_releases.whose_lock(port, claim, part[0], until)
            if whose != "unknown" or not is_doubtful:
                return await _release_in_moving_slot(port, claim, part, whose, until)
        if is_unrecorded or is_doubtful or not _is_barred(port, error):
            unanswered_releases.forget_unsent(port, claim, error)
            _limit_repetitions(port, claim, error, RECORDED)
            unanswered_releases.record_usual(port, claim, method, error)
            raise
        barred = error
    except BaseException as error:
        unanswered_releases.forget_unsent(port, claim, error)
        _limit_repetitions(port, claim, error, RECORDED)
        raise
    claim.release_sent = None
    fallback = partial(_by_fallbacks, port, claim, part, method, until, barred)
    return await completed(port, claim, part, fallback)


async def _release_in_moving_slot(
    port: Port, claim: Claim, part: tuple[bytes, ...], whose: str, until: float
) -> Refusal | None:
    """Release keys one by one, as no script may touch several; ``whose`` they are by the record."""
    if whose == "another":
        return Refusal(claim.identifier)
    if whose == "none":
        return None
    if whose == "own" and port.now() >= claim.deadline:
        return Refusal(None)  # a later request might release the lock of another
    unlock_key = partial(
        _unlock_as_found if claim.shares_identifier else _unlock,
        milliseconds=claim.min_hold_left(port.now()),
    )
    one_by_one = partial(_one_by_one, unlock_key, port, claim, part, until)
    return await completed(port, claim, part, one_by_one)


def _limit_repetitions(port: Port, claim: Claim, error: BaseException, seconds: float) -> None:
    """Note for how long the server knows what became of a request without a reply.

    Later a repetition might release the lock of another claim with the same identifier.
    """
    may_be_released = not isinstance(error, Exception) or may_have_run(port, error)
    if claim.shares_identifier and may_be_released and port.was_sent(error):
        claim.recorded_until = min(claim.recorded_until, port.now() + seconds)


def _may_end_another(claim: Claim, part: tuple[bytes, ...]) -> bool:
    """Whether keys may be held by another claim with the same identifier.

    An earlier request may have released them, and a release that reads no record cannot know.
    """
    may_be_released = any(key in claim.maybe_released for key in part)
    return claim.may_be_unsettled or (claim.shares_identifier and may_be_released)


async def _by_fallbacks(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    barred: Exception,
) -> Refusal | None:
    """Release keys by the first other method that the server accepts; else raise ``barred``."""
    for release in _fallbacks(port, claim, method):
        try:
            refusal = await _one_by_one(release, port, claim, part, until)
        except ConfigurationError as error:  # the server lacks it
            if not port.is_outcome(error):
                raise
            continue
        except Exception as error:
            if not _is_barred(port, error):
                raise
            continue
        log.info(
            "lock %s was released by a fallback, as the usual method failed (%s: %s)",
            *(shown(claim.lock_name), type(barred).__name__, barred),
        )
        return refusal
    raise barred


def _is_barred(port: Port, error: Exception) -> bool:
    """Whether the server refuses this method, but might accept another."""
    return port.lacks(error) in ("command", "right", "memory")


def _fallbacks(port: Port, claim: Claim, method: ReleaseMethod) -> Iterator[ReleaseKey]:
    """All other methods, in the order of how much they leave undone.

    Scripts are first: the last of them touches only the keys by which the lock was acquired.
    """
    left = claim.min_hold_left(port.now())
    if method != "script" and left == 0:
        yield by_script
    yield partial(_unlock, milliseconds=left)
    if left == 0:  # where DEL is forbidden: let the key expire after 1 ms
        yield partial(_unlock, milliseconds=1)
    if method != "transaction" and port.transacts:
        yield transaction
    if method != "native" and left == 0:  # it can only delete the key
        yield native


def _unlock(
    port: Port, claim: Claim, key: bytes, until: float, milliseconds: int
) -> Awaitable[Refusal | None]:
    """Release a key without its companion keys, with a placeholder for so many milliseconds."""
    own = noting(port, claim, (key,))
    send = partial(unlock, port, claim, key, until, milliseconds, own)
    return unanswered_releases.send_unrecorded(port, claim, key, until, send)


async def _unlock_as_found(
    port: Port, claim: Claim, key: bytes, until: float, milliseconds: int
) -> Refusal | None:
    """``_unlock`` for an identifier that others may use: only the lock that is there now.

    A copy of the request that arrives late finds another end. Locks without an expiry have no end
    by which to distinguish them.
    """
    refusal: Refusal | None = None
    for _ in range(MOST_ENDS):  # an earlier renewal may still move it
        found = await ask(port, "time_left", claim, (key,), FROM_MASTER, until=until)
        if found is None or found.free_in is None:
            holder = None if found is None else found.holder
            is_resting = holder == unanswered_releases.min_hold_placeholder(claim)
            return None if is_resting else Refusal(holder)
        own, end = noting(port, claim, (key,)), int(found.holder or 0)
        send = partial(unlock, port, claim, key, until, milliseconds, own, end)
        refusal = await unanswered_releases.send_unrecorded(port, claim, key, until, send)
        if refusal is None or refusal.holder != claim.identifier:
            break
        claim.release_sent = None  # it has released nothing
    return refusal


async def _one_by_one(
    release: ReleaseKey,
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    until: float,
) -> Refusal | None:
    """Release keys by one request each.

    Returns the worst refusal that no earlier request of ours explains. An earlier copy of the
    release script, which the client has repeated, may have released some keys.

    The claim notes what is released, as a repetition must not take that for a loss.
    """
    found = []
    for key in part:
        if key in claim.released_keys:  # by a fallback that failed for a later key
            continue
        try:
            refusal = await release(port, claim, key, until)
        except BaseException as error:
            unanswered_releases.forget_unsent(port, claim, error)
            if isinstance(error, Exception):
                unanswered_releases.record_unanswered(port, claim, error)
            if claim.release_sent is not None:
                _limit_repetitions(port, claim, error, -math.inf)
            if port.is_outcome(error):
                claim.release_sent = None
            raise
        if refusal is not None:
            claim.release_sent = None
        if (
            refusal is None
            or unanswered_releases.explains(claim, key, refusal)
            or await unanswered_releases.is_recorded(port, claim, key, until)
        ):
            claim.released_keys += (key,)
        else:
            found.append(refusal)
    return worst(found)
