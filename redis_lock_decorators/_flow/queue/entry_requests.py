"""Requests about the entries of a queue."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.entry_records import AbandonedEntry, EnteredClaim
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter
from redis_lock_decorators._flow.requests import (
    Refusal,
    ask,
    cancel,
    enter,
    is_slot_moving,
    refusal_of,
)
from redis_lock_decorators._flow.retries import clean_up, cleanup_limits, with_repeats
from redis_lock_decorators._rules.keys import with_queue

#: Seconds to try to remove an entry from a server that has just failed to answer.
LEAVING = 0.25


def enqueue(
    port: Port, claim: Claim, waiter: QueuedWaiter, channel: str, former: str, until: float
) -> Awaitable[Refusal | None]:
    """Acquire the lock if it is free, else add an entry to its queue in place of a former one."""

    def read(holder: Any, milliseconds: int, ticket: int) -> Refusal:
        waiter.ticket = int(ticket)
        return refusal_of(holder, milliseconds)

    details = (claim.expire_ms, channel, claim.grant_ms, waiter.ticket, former)
    keys = with_queue(claim.keys)
    return ask(port, "enqueue", claim, keys, *details, until=until, read=read)


def verify(
    port: Port, claim: Claim, waiter: QueuedWaiter, until: float
) -> Awaitable[Refusal | None]:
    """Ask whether the lock was granted to the waiter; if so, its lease starts now."""

    def read(holder: Any, milliseconds: int, is_queued: int) -> Refusal:
        waiter.is_queued = is_queued == 1 and not waiter.is_proved
        return refusal_of(holder, milliseconds)

    return enter(port, claim, waiter.queue_entry or "", claim.expire_ms, until, read)


async def leave_queue(port: Port, claim: Claim, until: float) -> None:
    """Leave the queue to wait in another way, by a new identifier.

    A late copy of this request must not release what is acquired then.
    """
    if claim.queue_entry is not None:
        await cancel(port, claim, claim.queue_entry, until)
        claim.queue_entry = None
        claim.replace_identifier()


async def leave_former(port: Port, key: bytes, entry: str) -> None:
    """Release what may have been granted to a former entry, which no later request has replaced.

    Its subscriber does so only for messages that are still to arrive.
    """
    claim = claim_on(key, 1.0, entry.split("|")[1])
    until = cleanup_limits(port, LEAVING)
    await port.shield(partial(clean_up, port, partial(cancel, port, claim, entry), until))


async def remove(port: Port, key: bytes, entry: str, until: float) -> None:
    """Remove an entry from the queue; a lock that was granted to it remains granted.

    The request has an identifier of its own, so that a late copy of it releases nothing.
    """
    await cancel(port, claim_on(key, 1.0), entry, until)


async def release_abandoned(port: Port, entry: AbandonedEntry, until: float) -> None:
    """Release a lock that was granted to an abandoned entry."""
    claim = claim_on(entry.key, 1.0, entry.identifier)
    await with_repeats(port, partial(cancel, port, claim, ""), until)


async def confirm(port: Port, entered: EnteredClaim, until: float) -> None:
    """Confirm to Redis that the lock was entered: then its expiry is no sign of a crash."""
    claim = claim_on(entered.key, 1.0, entered.identifier)
    if entered.claim.cohort is None:  # else it may have been handed off
        claim.owner_info, claim.entered = entered.claim.owner_info, entered.claim.entered
    try:
        await with_repeats(port, partial(enter, port, claim, entered.queue_entry, 0), until)
    except Exception as error:
        if not is_slot_moving(
            port, error
        ):  # while its slot is moving, the lock is granted to no entry
            raise
