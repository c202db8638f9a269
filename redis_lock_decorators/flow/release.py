"""Letting go: only what is ours, whatever way the server offers."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from redis_lock_decorators.errors import (
    ConfigurationError,
    LockLostError,
    LockNotOwnedError,
    shortened,
    shown,
)
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.cohort import pass_on
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import (
    ROUND_TRIP,
    Misheard,
    Refusal,
    Send,
    ask,
    groups,
    persist,
    text,
)
from redis_lock_decorators.rules import durations
from redis_lock_decorators.rules.keys import with_queue
from redis_lock_decorators.rules.options import ReleaseMethod

log = logging.getLogger("redis_lock_decorators")

#: Compare-and-delete in one command: Valkey 9.0, Redis 8.4.
NATIVE = {"DELIFEQ": (), "DELEX": ("IFEQ",)}


async def release(port: Port, claim: Claim, method: ReleaseMethod) -> None:
    """Let a held claim go; nothing to do if it is gone already.

    Raises:
        LockLostError: the lease had ended before: another may have been inside.
        LockNotOwnedError: the claim belongs to the process that this one was forked from.
    """
    if claim.ended:
        return
    refuse_fork(claim)
    if claim.cohort is not None and pass_on(port, claim):
        end(port, claim)
        return
    in_time = port.now() < claim.deadline
    try:
        work = partial(let_go, port, claim, method)
        if claim.has_queued:  # others wait: it may overtake what tasks have asked meanwhile
            work = partial(let_go, port, claim, method, send=port.hasten)
        refusal = await persist(port, work, claim.deadline)
    except Exception:
        raise
    except BaseException:
        await port.shield(let_go(port, claim, method, port.now() + ROUND_TRIP))
        end(port, claim)
        raise
    end(port, claim)
    if claim.lost_to is not None:
        raise LockLostError(claim.lock_name, why=claim.lost_to)
    if refusal is not None and not (in_time and _is_our_work(port, claim, refusal)):
        raise lost(port, claim, refusal)


async def leave(port: Port, claim: Claim, method: ReleaseMethod, failed: bool) -> None:
    """Let go at the end of a block; never in place of the exception that ``failed`` it.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    was_lost = claim.is_lost(port.now())
    try:
        await release(port, claim, method)
    except LockNotOwnedError as error:
        if not failed:
            raise
        log.warning("%s", error)
    except Exception as error:
        end(port, claim)
        log.warning(
            "lock %s could not be let go (%s: %s); it frees itself when its lease ends",
            *(shown(claim.lock_name), type(error).__name__, error),
        )
        if was_lost and not failed:
            why = claim.lost_to or "its time ran out"
            raise LockLostError(claim.lock_name, why=why) from error


def let_go(
    port: Port, claim: Claim, method: ReleaseMethod, until: float, send: Send | None = None
) -> Awaitable[Refusal | None]:
    """Let the claim's keys go where they hold its identifier. None: all were let go."""
    claim.parting += 1
    parts = groups(port, claim) if method == "script" else [(key,) for key in claim.keys]
    if len(parts) == 1:
        return let_go_part(port, claim, parts[0], method, until, send)
    return _let_go_parts(port, claim, parts, method, until)


async def _let_go_parts(
    port: Port,
    claim: Claim,
    parts: Iterable[tuple[bytes, ...]],
    method: ReleaseMethod,
    until: float,
) -> Refusal | None:
    refusals, failures = [], []
    for part in parts:
        try:
            refusals.append(await let_go_part(port, claim, part, method, until))
        except Exception as error:  # one sick node does not keep the keys of a healthy one
            failures.append(error)
    if failures:
        raise failures[0]
    found = [refusal for refusal in refusals if refusal is not None]
    return max(found, key=lambda refusal: refusal.holder or "", default=None)


def let_go_part(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send | None = None,
) -> Awaitable[Refusal | None]:
    """Let those keys of the claim go that one request may touch."""
    if claim.place is not None:
        keys = with_queue(claim.keys)
        return ask(port, "cancel", claim, keys, claim.place, until=until)
    if method == "script":
        if claim.rest > -math.inf:
            return _lay_down(port, claim, part, until)
        return ask(port, "release", claim, with_queue(part), until=until, send=send)
    one = _transaction if method == "transaction" else _native
    return one(port, claim, part[0], until)


async def _lay_down(
    port: Port, claim: Claim, part: tuple[bytes, ...], until: float
) -> Refusal | None:
    """Let go, but let the lock stand until its least time is over."""
    left = claim.rest - port.now()
    if left <= 0:
        return await ask(port, "release", claim, with_queue(part), until=until)
    milliseconds = durations.milliseconds(left)
    return await ask(port, "rest", claim, with_queue(part), milliseconds, until=until)


def _is_our_work(port: Port, claim: Claim, refusal: Refusal) -> bool:
    """Whether the keys may be gone by our own earlier request, whose reply was lost."""
    if claim.parting > 1:
        return True  # another may even have taken the lock since
    return port.resends and refusal.holder is None


def end(port: Port, claim: Claim) -> None:
    """Forget a claim that is over."""
    claim.ended = True
    forget(port, claim)
    if claim.cohort is not None:
        claim.cohort.stir(port.now())


def forget(port: Port, claim: Claim) -> None:
    """Let the claim's keys be taken again by its owner."""
    for key in claim.keys:
        if port.held.get(key) is claim:
            del port.held[key]


def lost(port: Port, claim: Claim, refusal: Refusal) -> LockLostError:
    """The error for a lease that Redis says is not ours, which is remembered."""
    forget(port, claim)
    claim.lost_to = claim.lost_to or refused(refusal)
    return LockLostError(claim.lock_name, holder=refusal.holder, why=claim.lost_to)


def refused(refusal: Refusal) -> str:
    """Why a lease is lost, as Redis says."""
    return f"{shortened(refusal.holder)} holds it" if refusal.holder else "its key is gone"


def refuse_over(claim: Claim) -> None:
    """Refuse a claim that was let go, or that is known to be lost."""
    if claim.lost_to is not None:
        raise LockLostError(claim.lock_name, why=claim.lost_to)
    if claim.ended or claim.parting > 0:
        raise LockNotOwnedError(claim.lock_name, why="this lease of it was released")


def refuse_fork(claim: Claim) -> None:
    """Refuse a claim inherited over a fork: the parent holds it, the child does not."""
    if not claim.is_of_this_process():
        raise LockNotOwnedError(
            claim.lock_name, why=f"it is held by the parent process {claim.process}"
        )


async def _transaction(port: Port, claim: Claim, key: bytes, until: float) -> Refusal | None:
    if not port.transacts:
        raise ConfigurationError(
            "this client is of a cluster and cannot WATCH: release by method='script'",
            claim.lock_name,
        )
    done = None
    async with port.watch() as watched:
        while done is None and port.now() < until:
            holder = text(await watched.holder(key))
            if holder != claim.identifier:
                return Refusal(holder)
            _, queue, facts = with_queue((key,))
            others = (("HDEL", facts, "granted"), ("EXISTS", queue))
            done = await watched.execute(_parting_command(port, claim, key), *others)
    if done is None:
        why = "its key changes faster than it can be read"
        raise LockNotOwnedError(claim.lock_name, why=why)
    if done[-1]:
        await _nudge(port, claim, key, until)
    return None


def _parting_command(port: Port, claim: Claim, key: bytes) -> tuple[Any, ...]:
    left = claim.rest - port.now()
    if left <= 0:
        return "DEL", key
    return "SET", key, f"{claim.identifier}:rest", "PX", durations.milliseconds(left)


async def _nudge(port: Port, claim: Claim, key: bytes, until: float) -> None:
    """Have a lock that was deleted handed to those who wait in its queue."""
    await port.shield(
        ask(port, "poke", claim, with_queue((key,)), until=until, read=lambda *facts: None)
    )


async def _native(port: Port, claim: Claim, key: bytes, until: float) -> Refusal | None:
    is_awaited = ("EXISTS", with_queue((key,))[1])
    for command, condition in NATIVE.items():
        delete = (command, key, *condition, claim.identifier)
        try:
            deleted, awaited = await _both(port, delete, is_awaited, until)
        except Exception as error:
            if port.lacks(error) == "command":
                continue
            raise
        if deleted not in (0, 1) or isinstance(deleted, bytes):
            await port.distrust()
            raise Misheard(f"a reply to another command arrived for {command}", claim.lock_name)
        if not deleted:
            return Refusal(text(await port.send("GET", key, until=until)))
        if claim.has_queued:
            await port.send("HDEL", with_queue((key,))[2], "granted", until=until)
        if awaited:
            await _nudge(port, claim, key, until)
        return None
    raise ConfigurationError(
        f"this server has none of {', '.join(NATIVE)} (Valkey 9.0, Redis 8.4): "
        "release by method='script'",
        claim.lock_name,
    )


async def _both(
    port: Port, one: tuple[Any, ...], other: tuple[Any, ...], until: float
) -> list[Any]:
    """The replies to two commands, in one trip where the client can."""
    if port.slotted:
        return [await port.send(*one, until=until), await port.send(*other, until=until)]
    replies = await port.send_together(one, other, until=until)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
