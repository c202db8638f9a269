"""One try to take all keys of a claim: by how many requests, and what counts as held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import is_resting
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release import release_group
from redis_lock_decorators._flow.requests import (
    ROUND_TRIP,
    Refusal,
    ask,
    groups,
    is_torn,
    is_unknown,
    persist,
    refusal_of,
)
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators.errors import ConfigurationError, LockUnconfirmedError, shortened, shown

#: The longest time for replicas to confirm, in milliseconds.
LONGEST_CONFIRMATION = 1000
#: The time that they get, in seconds, however short the caller's wait: they may be far away.
LEAST_CONFIRMATION = 0.1
#: How long the number of the last acquisition is kept, in milliseconds. Numbers begin with the
#: server's clock, so this need only be longer than a clock is ever set back, or than that of the
#: next master is behind.
FENCE_KEPT = _lua.KEPT
#: A lease whose grant arrived after its end.
LATE = Refusal(None)
#: A lock whose keys are at two nodes.
TORN = Refusal(None, why="its slot is moving to another node of the cluster")


class Unconfirmed(Refusal):
    """A lock that was free, was taken, and was let go as too few replicas knew of it in time."""

    __slots__ = ()


async def try_once(port: Port, claim: Claim, until: float, stop: float) -> Refusal | None:
    """Take all keys of the claim or none; the refusal, or None: they are held.

    ``until`` is the latest time for a reply, ``stop`` the end of the caller's wait.

    Raises:
        LockUnconfirmedError: that is over, and too few replicas knew of the lock.
    """
    sent = port.now()
    if claim.cohort_waiter is not None:
        claim.cohort_waiter.acts(sent)
    slots = groups(port, claim)
    for group in slots:
        try:
            refusal = await _take(port, claim, group, until, stop)
        except Exception as error:
            if not is_torn(port, error):
                raise
            await _give_back(port, claim, slots, until)
            return TORN
        if refusal is not None:
            is_unconfirmed = type(refusal) is Unconfirmed
            if len(slots) > 1 or is_unconfirmed:
                await _give_back(port, claim, slots, until)
            if is_unconfirmed and port.now() >= stop:
                raise unconfirmed(claim, refusal)
            return refusal
    claim.mark_held(sent)
    return None if port.now() < claim.deadline else LATE


def unconfirmed(claim: Claim, refusal: Refusal) -> LockUnconfirmedError:
    """The error for a lock that too few replicas knew of, as the last try tells."""
    return LockUnconfirmedError(claim.lock_name, why=refusal.why)


def _take(
    port: Port, claim: Claim, group: tuple[bytes, ...], until: float, stop: float
) -> Awaitable[Refusal | None]:
    if claim.replicas or claim.fencing:
        return _take_surely(port, claim, group, until, stop)
    if claim.clock is not None:
        read = partial(_timed, claim, port.now())
        return ask(port, "acquire", claim, group, claim.expire_ms, 1, until=until, read=read)
    if len(claim.keys) > 1:
        read = partial(_placed, claim, group)
        return ask(port, "acquire", claim, group, claim.expire_ms, until=until, read=read)
    return ask(port, "acquire", claim, group, claim.expire_ms, until=until)


def _placed(
    claim: Claim, group: tuple[bytes, ...], holder: Any, milliseconds: int, place: int = 1
) -> Refusal | None:
    """The refusal for one of several keys, which says which lock that is."""
    refusal = refusal_of(holder, milliseconds)
    if len(claim.keys) == 1 or refusal.holder is None or is_resting(refusal.holder):
        return refusal
    lock_name = claim.lock_names[claim.keys.index(group[int(place) - 1])]
    return refusal._replace(why=f"{shown(lock_name)} is held by {shortened(refusal.holder)}")


def _timed(claim: Claim, sent: float, *answer: Any) -> Refusal | None:
    *found, time = answer
    claim.clock = Clock(sent, int(time), not found)
    return refusal_of(*found) if found else None


async def _take_surely(
    port: Port, claim: Claim, group: tuple[bytes, ...], until: float, stop: float
) -> Refusal | None:
    """Take keys by a number that grows, and not before enough replicas know of it."""
    confirmed: Any = claim.replicas

    async def send(*command: Any, until: float) -> Any:
        nonlocal confirmed
        now = port.now()
        left = max(LEAST_CONFIRMATION, min(until, stop) - now)
        most = max(1, min(LONGEST_CONFIRMATION, claim.expire_ms // 4, durations.milliseconds(left)))
        # The server keeps its replies back for so long, which is no part of the round trip.
        latest = max(until, min(until, now + ROUND_TRIP) + most / 1000)
        wait = ("WAIT", claim.replicas, most)
        reply, confirmed = await port.send_together(command, wait, until=latest)
        if isinstance(reply, Exception):
            raise reply
        return reply

    own = send if claim.replicas else None
    read: Callable[..., Refusal | None] = _placed
    verb, keys, details = "acquire", group, [claim.expire_ms]
    if claim.fencing:
        verb, read = "acquire_fenced", _numbered
        keys += tuple([companion(key, b"fence") for key in group])
        details.append(FENCE_KEPT)
    answered = partial(read, claim, group)
    refusal = await ask(port, verb, claim, keys, *details, until=until, read=answered, send=own)
    if isinstance(confirmed, Exception):
        if refusal is not None and is_unknown(port, confirmed):
            return refusal  # nothing was taken that replicas could know of
        raise confirmed
    if refusal is not None or confirmed >= claim.replicas:
        return refusal
    return Unconfirmed(None, why=f"{confirmed} of {claim.replicas} replicas confirmed it in time")


def _numbered(claim: Claim, group: tuple[bytes, ...], *found: Any) -> Refusal | None:
    if len(found) > 1:
        return _placed(claim, group, *found)
    claim.fence = int(found[0])
    return None


def refuse_unnumberable(port: Port, claim: Claim) -> None:
    """Refuse a claim that cannot have one number for all its keys.

    Raises:
        ConfigurationError: they lie in several slots.
    """
    if len(groups(port, claim)) > 1:
        raise ConfigurationError(
            f"lock {shown(claim.lock_name)} cannot have one fence: its names lie in different "
            "slots of the cluster; give them a common hash tag such as {user:7}",
            claim.lock_name,
        )


async def _give_back(
    port: Port, claim: Claim, slots: list[tuple[bytes, ...]], until: float
) -> None:
    """Let go what was taken of several slots: held while waiting, it could outlive its lease."""
    for group in slots:
        release = partial(release_group, port, claim, group, "script")
        await port.shield(partial(persist, port, release, until))
    claim.replace_identifier()  # a late copy of these releases must not match the next try
