"""One attempt to acquire all keys of a claim: its requests, and what counts as held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import is_resting
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_requests import release_group
from redis_lock_decorators._flow.requests import (
    Refusal,
    ask,
    groups,
    is_slot_moving,
    is_unknown,
    refusal_of,
)
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators.errors import ConfigurationError, LockUnconfirmedError, shortened, shown

#: The longest time for replicas to confirm.
LONGEST_CONFIRMATION_MS = 1000
#: Replicas get at least this time, however short the caller's wait is: they may be far away.
LEAST_CONFIRMATION_SECONDS = 0.1
#: The time to live of the last fence. Fences start from the server's clock, so it must only exceed
#: the time by which a clock is set back, or by which that of the next master is behind.
FENCE_TTL_MS = _lua.COMPANION_TTL
#: Argument of the script ``acquire``: the last key is no lock. It never exists: while its slot is
#: moving, no node has all keys of the request, so none runs it.
GUARDED = 3
#: Argument of the script ``acquire``: call GET before the lock is acquired.
CHECKING = 4
#: A lease that had ended when the reply arrived.
TOO_LATE = Refusal(None)
#: A lock whose keys are on two nodes.
SLOT_MOVING = Refusal(None, why="its slot is moving to another node of the cluster")


class Unconfirmed(Refusal):
    """A free lock that was acquired, and released as too few replicas confirmed in time."""

    __slots__ = ()


async def try_once(port: Port, claim: Claim, until: float, stop: float) -> Refusal | None:
    """Acquire all keys of the claim or none; the refusal, or None: they are held.

    ``until`` is the latest time for a reply, ``stop`` the end of the caller's wait.

    Raises:
        LockUnconfirmedError: too few replicas confirmed, and the wait is over.
    """
    sent = port.now()
    if claim.cohort_waiter is not None:
        claim.cohort_waiter.note_progress(sent)
    slots = groups(port, claim)
    for group in slots:
        try:
            refusal = await _acquire_group(port, claim, group, until, stop)
        except Exception as error:
            if not is_slot_moving(port, error):
                raise
            await _release_groups(port, claim, slots, until)
            return SLOT_MOVING
        if refusal is not None:
            is_unconfirmed = type(refusal) is Unconfirmed
            if len(slots) > 1 or is_unconfirmed:
                await _release_groups(port, claim, slots, until)
            if is_unconfirmed:
                claim.unconfirmed = refusal.why
                if port.now() >= stop:
                    raise unconfirmed(claim)
            return refusal
    claim.mark_held(sent)
    return None if port.now() < claim.deadline else TOO_LATE


def unconfirmed(claim: Claim) -> LockUnconfirmedError:
    """The error for a lock that was free, but too few replicas confirmed it."""
    return LockUnconfirmedError(claim.lock_name, why=claim.unconfirmed)


def _acquire_group(
    port: Port, claim: Claim, group: tuple[bytes, ...], until: float, stop: float
) -> Awaitable[Refusal | None]:
    if claim.replicas or claim.fencing:
        return _acquire_fenced_or_confirmed(port, claim, group, until, stop)
    if claim.clock is not None:
        read = partial(_read_time, claim, port.now())
        return ask(port, "acquire", claim, group, claim.expire_ms, 1, until=until, read=read)
    if not port.rights.has_get:
        return _acquire_checking(port, claim, group, until)
    if len(claim.keys) > 1:
        read = partial(_read_refusal, claim, group)
        return ask(port, "acquire", claim, group, claim.expire_ms, until=until, read=read)
    return ask(port, "acquire", claim, group, claim.expire_ms, until=until)


async def _acquire_checking(
    port: Port, claim: Claim, group: tuple[bytes, ...], until: float
) -> Refusal | None:
    """Acquire keys by a request that is refused to a user who could not release them."""
    read, details = partial(_read_refusal, claim, group), (claim.expire_ms, CHECKING)
    refusal = await ask(port, "acquire", claim, group, *details, until=until, read=read)
    port.rights.has_get = True
    return refusal


def _read_refusal(
    claim: Claim, group: tuple[bytes, ...], holder: Any, milliseconds: int, number: int = 1
) -> Refusal | None:
    """The refusal for one of several keys, with the name of the lock that is held."""
    refusal = refusal_of(holder, milliseconds)
    if len(claim.keys) == 1 or refusal.holder is None or is_resting(refusal.holder):
        return refusal
    lock_name = claim.lock_names[claim.keys.index(group[int(number) - 1])]
    return refusal._replace(why=f"{shown(lock_name)} is held by {shortened(refusal.holder)}")


def _read_time(claim: Claim, sent: float, *reply: Any) -> Refusal | None:
    *found, time = reply
    claim.clock = Clock(sent, int(time), not found)
    return refusal_of(*found) if found else None


async def _acquire_fenced_or_confirmed(
    port: Port, claim: Claim, group: tuple[bytes, ...], until: float, stop: float
) -> Refusal | None:
    """Acquire keys with a fence, or with the confirmation of replicas, or both."""
    confirmed: Any = claim.replicas

    async def send(*command: Any, until: float) -> Any:
        nonlocal confirmed
        now = port.now()
        left = max(LEAST_CONFIRMATION_SECONDS, min(until, stop) - now)
        most = max(
            1, min(LONGEST_CONFIRMATION_MS, claim.expire_ms // 4, durations.milliseconds(left))
        )
        # The server may delay its reply to WAIT by that, in addition to the round trip.
        latest = max(until, min(until, now + ROUND_TRIP) + most / 1000)
        wait = ("WAIT", claim.replicas, most)
        *replies, confirmed = await port.send_together(command, wait, until=latest)
        if isinstance(replies[0], Exception):
            raise replies.pop()
        return replies[0]

    own = send if claim.replicas else None
    # A cluster's client repeats a redirected script at the node that imports the slot, but WAIT is
    # answered by the other node: its replicas do not get the lock.
    is_guarded = claim.replicas > 0 and port.slotted
    read: Callable[..., Refusal | None] = _read_refusal
    verb, keys, details = "acquire", group, [claim.expire_ms]
    if claim.fencing:
        verb, read = "acquire_fenced", _read_fence
        keys += tuple([companion(key, b"fence") for key in group])
        details.append(FENCE_TTL_MS)
    elif is_guarded:
        details.append(GUARDED)
    elif not port.rights.has_get:
        details.append(CHECKING)
    if is_guarded:
        keys += (companion(group[0], b"absent"),)
    read = partial(read, claim, group)
    refusal = await ask(port, verb, claim, keys, *details, until=until, read=read, send=own)
    if isinstance(confirmed, Exception):
        if refusal is not None and is_unknown(port, confirmed):
            return refusal  # nothing was acquired that replicas could confirm
        raise confirmed
    if refusal is not None or confirmed >= claim.replicas:
        return refusal
    return Unconfirmed(None, why=f"{confirmed} of {claim.replicas} replicas confirmed it in time")


def _read_fence(claim: Claim, group: tuple[bytes, ...], *found: Any) -> Refusal | None:
    if len(found) > 1:
        return _read_refusal(claim, group, *found)
    claim.fence = int(found[0])
    return None


def refuse_several_slots(port: Port, claim: Claim) -> None:
    """Refuse a fence for keys in several slots: no script could set it for all of them.

    Raises:
        ConfigurationError: the keys lie in several slots.
    """
    if len(groups(port, claim)) > 1:
        raise ConfigurationError(
            f"lock {shown(claim.lock_name)} cannot have one fence: its names lie in different "
            "slots of the cluster; give them a common hash tag such as {user:7}",
            claim.lock_name,
        )


async def _release_groups(
    port: Port, claim: Claim, slots: list[tuple[bytes, ...]], until: float
) -> None:
    """Release the keys of all slots, as nothing is held while waiting; then use a new identifier.

    Otherwise a late copy of these releases could release the keys of the next attempt.
    """
    for group in slots:
        release = partial(release_group, port, claim, group, "script")
        await port.shield(partial(with_repeats, port, release, until))
    claim.replace_identifier()
