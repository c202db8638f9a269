"""Extend a held lease, and ask who holds a lock."""

from __future__ import annotations

from functools import partial
from typing import Any

from redis_lock_decorators._flow.claim import Claim, claim_on, refuse_fork
from redis_lock_decorators._flow.error_notes import adding_notes
from redis_lock_decorators._flow.identifiers import released_by
from redis_lock_decorators._flow.losses import record_expiry, record_loss, refuse_over
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._flow.requests import (
    Refusal,
    ask,
    found_text,
    get,
    groups,
    is_forbidden,
    is_slot_moving,
)
from redis_lock_decorators._flow.retries import OUTAGE, cleanup_limits, with_repeats
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._rules.owner_info import KIND, is_of, parsed
from redis_lock_decorators.errors import LockLostError


async def extend(port: Port, claim: Claim, seconds: float) -> None:
    """Extend the lease, so that it lasts at least ``seconds`` from now.

    Raises:
        LockLostError: the keys are no longer ours, or the lease ended before the reply arrived.
        LockNotOwnedError: it was released before, or it belongs to the process that this one was
            forked from.
    """
    refuse_fork(claim)
    _refuse_late(port, claim)
    sent, expire_ms = port.now(), durations.milliseconds(seconds)

    async def attempt(until: float) -> Refusal | None:
        nonlocal sent
        sent = port.now()
        return await _attempt(port, claim, expire_ms, until)

    with adding_notes(port, claim, "extended"):
        refusal = await with_repeats(port, attempt, port.now() + OUTAGE)
    if refusal is not None:
        refuse_over(claim)  # another thread released it, or reported it as lost
        raise record_loss(port, claim, refusal)
    try:
        _refuse_late(port, claim)
        claim.prolong(sent, expire_ms / 1000)
        refuse_over(claim)  # the renewer may have reported the loss on another thread
    except LockLostError as error:
        if not port.is_outcome(error):
            raise
        # No claim holds the keys that were extended: other clients need not wait for their end.
        await port.shield(
            partial(release_keys, port, claim, "script", cleanup_limits(port, ROUND_TRIP))
        )
        raise


async def owner(port: Port, keys: tuple[bytes, ...], lock_names: tuple[str, ...]) -> str | None:
    """The identifier of the holder of the first key that is not free; None if all are free.

    During ``min_hold`` that is the last holder. It is "" if the key holds an empty string.
    """
    found = await holders(port, keys, lock_names=lock_names)
    first = next((holder for holder in found if holder is not None), None)
    return first and released_by(first)


async def owner_info(
    port: Port, keys: tuple[bytes, ...], lock_names: tuple[str, ...]
) -> dict[str, Any] | None:
    """The information about the holder of the first key that is not free; None if it has none."""
    found = await holders(port, keys, lock_names=lock_names)
    for key, lock_name, holder in zip(keys, lock_names, found, strict=True):
        if holder is not None:
            own = companion(key, KIND)
            read = partial(get, port, own, lock_name)
            stored = await with_repeats(port, read, port.now() + OUTAGE)
            return parsed(stored) or None if is_of(stored, holder) else None
    return None


async def holders(
    port: Port,
    keys: tuple[bytes, ...],
    seconds: float = OUTAGE,
    lock_names: tuple[str, ...] | None = None,
) -> list[str | None]:
    """The identifiers stored in the keys; None where a key is free.

    Args:
        seconds: the longest wait for each key.

    Raises:
        OtherData: a key holds other data.
    """
    found = []
    names = lock_names or [key.decode(errors="surrogateescape") for key in keys]
    for key, lock_name in zip(keys, names, strict=True):
        ask_for = partial(_value, port, key, lock_name)
        found.append(await with_repeats(port, ask_for, port.now() + seconds))
    return found


async def _value(port: Port, key: bytes, lock_name: str, until: float) -> str | None:
    if port.may_resend:
        # Over connections shared with others any text may arrive: only a script marks its reply.
        claim = claim_on(key, 1.0, lock_name=lock_name)
        try:
            found = await ask(port, "time_left", claim, (key,), until=until, read=_seen)
        except Exception as error:
            if not is_forbidden(port, error):
                raise
        else:
            return found and found.holder
    return found_text(await get(port, key, lock_name, until))


def _seen(holder: Any, *left: Any) -> Refusal:
    return Refusal(found_text(holder))


def _refuse_late(port: Port, claim: Claim) -> None:
    """Refuse a claim that is over, or whose deadline has passed."""
    refuse_over(claim)
    if port.now() >= claim.deadline:
        raise record_expiry(port, claim)


async def _attempt(port: Port, claim: Claim, expire_ms: int, until: float) -> Refusal | None:
    for group in groups(port, claim):
        refusal = await _extend(port, claim, group, expire_ms, until)
        if refusal is not None:
            return refusal
    return None


async def _extend(
    port: Port, claim: Claim, group: tuple[bytes, ...], expire_ms: int, until: float
) -> Refusal | None:
    try:
        return await ask(port, "extend", claim, group, expire_ms, until=until)
    except Exception as error:
        if len(group) == 1 or not is_slot_moving(port, error):
            raise
    for key in group:  # while their slot is moving, no script may touch several keys
        refusal = await _extend(port, claim, (key,), expire_ms, until)
        if refusal is not None:
            return refusal
    return None
