"""Release methods other than the usual script."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from functools import partial
from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.late_outcomes import warn_unknown
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port, Sending, Watched
from redis_lock_decorators._flow.requests import (
    OTHER_DATA,
    Refusal,
    ReplyMismatch,
    ask,
    is_forbidden,
    is_slot_moving,
    raise_failure,
    record_arguments,
    text,
)
from redis_lock_decorators._flow.retries import OUTAGE, clean_up, cleanup_limits
from redis_lock_decorators._flow.sent_releases import relies_on_record, sending
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, end_of
from redis_lock_decorators._flow.unanswered_releases import (
    min_hold_placeholder,
    send_unrecorded,
    unexplained,
)
from redis_lock_decorators._rules.keys import companion, with_notes, with_queue
from redis_lock_decorators._rules.marks import marked
from redis_lock_decorators._rules.owner_info import KIND
from redis_lock_decorators.errors import ConfigurationError, LockNotOwnedError, shown

#: Why a client has no transactions.
CANNOT_WATCH = "this client cannot WATCH, as it is of a cluster or has no usable pipeline()"
#: Compare-and-delete in one command: Valkey 9.0, Redis 8.4.
NATIVE = {"DELIFEQ": (), "DELEX": ("IFEQ",)}
#: The field that records to which waiter a lock was granted.
GRANTED = "granted"
#: Tries of a transaction whose key is changed each time.
MOST_TRIES = 100
#: A field that is in no record: to delete it changes nothing, whatever the lock's key holds.
NO_FIELD = "none"


async def transaction(port: Port, claim: Claim, key: bytes, until: float) -> Refusal | None:
    """Release a key by WATCH, MULTI and EXEC."""
    if not port.transacts:
        raise ConfigurationError(
            f"{CANNOT_WATCH}: release by method='script'",
            claim.lock_name,
        )
    done, holder = None, None
    async with port.watch(until) as watched:
        stop = None
        for _ in range(MOST_TRIES):
            if done is not None or (stop is not None and port.now() >= stop):
                break
            try:
                found = await watched.holder(key)
            except Exception as error:
                if port.lacks(error) != "string":
                    raise
                return Refusal(None, why=OTHER_DATA)
            holder = text(found)
            if stop is None:  # the wait for a connection does not count
                stop = max(until, min(end_of(until), port.now() + OUTAGE))
            if holder != claim.identifier:
                if await _confirm_master(port, claim, watched, key):
                    break
                continue
            _, queue, records = with_queue((key,))
            others = [("HDEL", records, GRANTED), ("EXISTS", queue)]
            if claim.owner_info is not None:
                others.insert(0, ("DEL", companion(key, KIND)))
            command = _release_command(port, claim, key)
            noted = sending(port, claim, (key,))
            done = await _executed(claim, watched, command, *others, sending=noted)
    if holder != claim.identifier:
        return await _judge(port, claim, key, holder, until)
    if done is None:
        why = "its key changes faster than it can be read"
        raise LockNotOwnedError(claim.lock_name, why=why)
    raise_failure(done[:1])
    claim.maybe_released += (key,)  # the request below may fail, and the release is repeated then
    raise_failure([reply for reply in done if not _is_other_data(port, reply)])
    if done[-1]:
        await recheck_queue(port, claim, key)
    return None


async def _executed(
    claim: Claim, watched: Watched, *commands: tuple[Any, ...], sending: Sending | None = None
) -> list[Any] | None:
    """The replies to the commands of a transaction; None if the watched key has changed.

    Raises:
        ReplyMismatch: over a connection that others use, the reply to another command arrived.
    """
    done = await watched.execute(*commands, sending=sending)
    if not isinstance(done, (list, tuple, type(None))):
        raise ReplyMismatch("the reply of EXEC is that of another command", claim.lock_name)
    return done


def _is_other_data(port: Port, reply: Any) -> bool:
    """Whether a command was refused as its key, of the records, holds other data."""
    return isinstance(reply, Exception) and port.lacks(reply) == "string"


async def _confirm_master(port: Port, claim: Claim, watched: Watched, key: bytes) -> bool:
    """Raise the READONLY of a replica; False if the watched key is no longer as it was found.

    A demoted master does not have the locks of the new one. The write that shows it changes
    nothing. Whether a master refuses it, for lack of memory or rights or because the key of the
    records holds other data, does not matter.
    """
    _, _, records = with_queue((key,))
    try:
        done = await _executed(claim, watched, ("HDEL", records, NO_FIELD))
        raise_failure(done or ())
        return done is not None
    except ReplyMismatch:  # then what was found is confirmed by script
        return True
    except Exception as error:
        if port.lacks(error) in ("memory", "right", "command", "string"):
            return True
        # No request that releases the key was sent, so a repetition explains nothing by this one.
        marked(error, "unsent")
        raise


async def native(port: Port, claim: Claim, key: bytes, until: float) -> Refusal | None:
    """Release a key by one command of the server.

    Its reply is a mere number. Over connections that others use, or that repeat requests on their
    own, this might be the reply to another command: there a script is used if it is allowed.
    """
    if port.may_resend:
        try:
            return await by_script(port, claim, key, until)
        except Exception as error:
            if not is_forbidden(port, error):
                raise
    return await send_unrecorded(port, claim, key, until, partial(_native, port, claim, key, until))


async def _native(port: Port, claim: Claim, key: bytes, until: float) -> Refusal | None:
    is_awaited = ("EXISTS", with_queue((key,))[1])
    for command, condition in NATIVE.items():
        delete = (command, key, *condition, claim.identifier)
        noted = sending(port, claim, (key,))
        try:
            deleted, awaited = await _both(port, claim, delete, is_awaited, until, noted)
            if deleted in (0, 1):
                _note_deleted(claim, key, deleted)
        except BaseException as error:
            if not (port.cancellable or port.is_outcome(error)):
                await _note_late(port, claim, key, noted)
            raise
        lacks = port.lacks(deleted) if isinstance(deleted, Exception) else ""
        if lacks == "command":
            continue
        if lacks == "string":
            return Refusal(None, why=OTHER_DATA)
        await _refuse_reply(port, claim, command, deleted)
        # If EXISTS is forbidden, to grant the lock to a waiter might be allowed all the same.
        if isinstance(awaited, Exception) and not is_forbidden(port, awaited):
            raise awaited
        if not deleted:
            holder = text(await port.send("GET", key, until=until))
            return await _judge(port, claim, key, holder, until)
        await _remove_grant(port, claim, key, until)
        if awaited:
            await recheck_queue(port, claim, key)
        return None
    if claim.deadline > -math.inf:  # it was acquired, so it must be released
        return await by_script(port, claim, key, until)
    raise ConfigurationError(
        f"this server has none of {', '.join(NATIVE)} (Valkey 9.0, Redis 8.4): "
        "release by method='script'",
        claim.lock_name,
    )


def _note_deleted(claim: Claim, key: bytes, deleted: Any) -> None:
    """Note the reply to a request that deletes a key: one that follows may fail, and be repeated.

    A key that was not deleted explains nothing, whatever the later requests find.
    """
    if deleted:
        claim.maybe_released += (key,)
    claim.release_sent = None


async def _note_late(port: Port, claim: Claim, key: bytes, noted: Sending) -> None:
    """Note the reply to such a request of a thread that was interrupted, if it still arrives."""
    late = port.late_reply(noted)
    if late is None:
        return
    try:
        deleted = await late(port.now() + ROUND_TRIP)
    except Exception as error:
        if not port.is_outcome(error):
            raise
        warn_unknown(claim)
        return
    _note_deleted(claim, key, deleted)


async def _refuse_reply(port: Port, claim: Claim, command: str, deleted: Any) -> None:
    """Raise the error that a native release is answered with, or one for a mismatched reply."""
    if isinstance(deleted, Exception):
        raise deleted
    if deleted not in (0, 1) or isinstance(deleted, bytes):
        await port.drop_idle_connections()
        raise ReplyMismatch(f"a reply to another command arrived for {command}", claim.lock_name)


async def _remove_grant(port: Port, claim: Claim, key: bytes, until: float) -> None:
    """Remove the record of the grant by which a released lock was held."""
    if not claim.has_queued:
        return
    try:
        await port.send("HDEL", with_queue((key,))[2], GRANTED, until=until)
    except Exception as error:
        if not is_forbidden(port, error):  # it expires on its own
            raise


async def _judge(
    port: Port, claim: Claim, key: bytes, holder: str | None, until: float
) -> Refusal | None:
    """The outcome for a key that does not hold the identifier."""
    refusal: Refusal | None = Refusal(holder)
    if port.may_resend:
        refusal = await _confirmed(port, claim, key, holder, until)
    may_be_ours = key in claim.maybe_released or port.may_resend
    if may_be_ours and holder in (None, min_hold_placeholder(claim)):
        await recheck_queue(port, claim, key)  # an earlier request may have failed at this step
    return refusal


async def _confirmed(
    port: Port, claim: Claim, key: bytes, holder: str | None, until: float
) -> Refusal | None:
    """The outcome by script for a key that seems not to hold the identifier.

    A script's reply is known to belong to its request. Without one, nothing is known of a key that
    is gone: an earlier copy of this request may have deleted it.
    """
    try:
        return await by_script(port, claim, key, until)
    except Exception as error:
        if not is_forbidden(port, error):
            raise
    if holder is None and port.now() < claim.deadline:
        log.info(
            "scripts are forbidden: whether lock %s was lost is not known", shown(claim.lock_name)
        )
        return None
    return Refusal(holder)


def by_script(port: Port, claim: Claim, key: bytes, until: float) -> Awaitable[Refusal | None]:
    """Release a key by the usual script."""
    keys, read = with_notes((key,)), partial(unexplained, claim, (key,))
    details = record_arguments(port, claim)
    is_noted = not (port.may_resend and relies_on_record(claim))
    noted = sending(port, claim, (key,)) if is_noted else None
    return ask(port, "release", claim, keys, *details, until=until, read=read, sending=noted)


def _release_command(port: Port, claim: Claim, key: bytes) -> tuple[Any, ...]:
    left = claim.min_hold_left(port.now())
    return ("SET", key, min_hold_placeholder(claim), "PX", left) if left else ("DEL", key)


async def recheck_queue(port: Port, claim: Claim, key: bytes) -> None:
    """Grant a lock whose key was deleted to the next waiter of its queue.

    Otherwise the waiters would notice only at their next recheck, seconds later.
    """
    keys = with_queue((key,))

    async def recheck(until: float) -> None:
        try:
            await ask(port, "recheck", claim, keys, until=until, read=lambda *seen: None)
        except Exception as error:
            if not is_slot_moving(port, error):  # no lock can be granted while its slot is moving
                raise

    await port.shield(partial(clean_up, port, recheck, cleanup_limits(port, ROUND_TRIP)))


async def _both(
    port: Port,
    claim: Claim,
    one: tuple[Any, ...],
    other: tuple[Any, ...],
    until: float,
    noted: Sending,
) -> list[Any]:
    """The replies to two commands, in one round trip if possible; an error counts as a reply."""
    if not port.slotted:
        return await port.send_together(one, other, until=until, sending=noted)
    replies: list[Any] = []
    for command, of_command in ((one, noted), (other, None)):
        try:
            replies.append(await port.send(*command, until=until, sending=of_command))
        except Exception as error:
            replies += (error, 0)
        except BaseException as error:
            port.withdraw(claim.identifier, error, of_command)
            raise
    return replies[:2]
