"""Fallbacks for a release that the server refuses: what was acquired can be released."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from redis_lock_decorators._flow import unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_methods import CANNOT_WATCH, by_script, native, transaction
from redis_lock_decorators._flow.requests import Refusal, is_torn, unlock
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, shown

#: A call that releases keys by one method.
Fallback = Callable[[], Awaitable[Refusal | None]]


def refuse_unfit(port: Port, method: ReleaseMethod) -> None:
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
    work: Awaitable[Refusal | None],
) -> Refusal | None:
    """Release keys by ``work``, or by another method if the server refuses that.

    While their slot is moving, no script may touch several keys: they are released one by one.
    """
    try:
        return await work
    except Exception as error:
        if is_torn(port, error):
            return await unlock(port, claim, part, claim.min_hold_left(port.now()), until)
        if not _is_barred(port, error):
            raise
        barred = error
    for fallback in _fallbacks(port, claim, part, method, until):
        try:
            refusal = await fallback()
        except ConfigurationError:  # the server lacks it
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


def _fallbacks(
    port: Port, claim: Claim, part: tuple[bytes, ...], method: ReleaseMethod, until: float
) -> Iterator[Fallback]:
    """All other methods, in the order of how much they leave undone.

    Scripts are first: the last of them touches only the keys by which the lock was acquired.
    """
    left = claim.min_hold_left(port.now())
    if method != "script" and left == 0:
        yield partial(_one_by_one, by_script, port, claim, part, until)
    yield partial(unlock, port, claim, part, left, until)
    if left == 0:  # where DEL is forbidden: let the key expire after 1 ms
        yield partial(unlock, port, claim, part, 1, until)
    if method != "transaction" and port.transacts:
        yield partial(_one_by_one, transaction, port, claim, part, until)
    if method != "native":
        yield partial(_one_by_one, native, port, claim, part, until)


async def _one_by_one(
    release: Callable[[Port, Claim, bytes, float], Awaitable[Refusal | None]],
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    until: float,
) -> Refusal | None:
    found = []
    for key in part:
        sent = port.now()
        try:
            refusal = await release(port, claim, key, until)
        except Exception as error:
            unanswered_releases.record_unanswered(port, claim, (key,), error, sent)
            raise
        if refusal is None:
            claim.released_keys += (key,)
        else:
            found.append(refusal)
    return max(found, key=lambda refusal: refusal.holder or "", default=None)
