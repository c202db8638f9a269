"""Delete the keys that hold our identifier, by whatever request the server and method allow."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterable
from functools import partial

from redis_lock_decorators._flow import unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ACTIVE, RELEASE_FAILED, RELEASING
from redis_lock_decorators._flow.late_outcomes import completed
from redis_lock_decorators._flow.port import Port, Sending
from redis_lock_decorators._flow.queue.cohort import is_handed_off
from redis_lock_decorators._flow.release_fallbacks import with_fallbacks
from redis_lock_decorators._flow.release_methods import native, transaction
from redis_lock_decorators._flow.requests import (
    Refusal,
    Send,
    ask,
    cancel,
    groups,
    record_arguments,
    worst,
)
from redis_lock_decorators._flow.sent_releases import relies_on_record
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators._rules.options import ReleaseMethod


def release_keys(
    port: Port, claim: Claim, method: ReleaseMethod, until: float, send: Send | None = None
) -> Awaitable[Refusal | None]:
    """Release the claim's keys where they hold its identifier.

    None: all are released, or are as an earlier release of the claim would have left them.
    """
    if claim.hand_off_decision is not None and is_handed_off(claim):
        return _nothing()  # another claim of the process holds the keys
    if claim.release_sent is not None:  # an exception came before the outcome was recorded
        claim.note_maybe_released(*claim.release_sent)
    if claim.state is ACTIVE:
        claim.state = RELEASING
    elif claim.state is RELEASING or claim.state is RELEASE_FAILED:
        # An earlier request may be run late, and this one, too: then nothing follows a NOSCRIPT.
        claim.state, claim.sends_text = RELEASING, True
    if method == "script" and not port.slotted:
        return release_group(port, claim, claim.keys, method, until, send)
    # Groups of keys that one request may release.
    parts = groups(port, claim) if method == "script" else [(key,) for key in claim.keys]
    if len(parts) == 1:
        return release_group(port, claim, parts[0], method, until, send)
    return _release_groups(port, claim, parts, method, until)


def release_keys_completely(
    port: Port, claim: Claim, method: ReleaseMethod, until: float
) -> Awaitable[Refusal | None]:
    """``release_keys`` by requests of which only the last shows the outcome."""
    attempt = partial(release_keys, port, claim, method, until)
    return completed(port, claim, claim.keys, attempt)


async def _release_groups(
    port: Port,
    claim: Claim,
    parts: Iterable[tuple[bytes, ...]],
    method: ReleaseMethod,
    until: float,
) -> Refusal | None:
    found, failures = [], []
    for part in parts:
        try:
            refusal = await release_group(port, claim, part, method, until)
        except Exception as error:  # the failure of a node must not keep the keys of the others
            if not port.is_outcome(error):
                raise
            failures.append(error)
            continue
        if refusal is None:
            claim.released_keys += part
        else:
            found.append(refusal)
    if failures:
        raise failures[0]
    return worst(found)


def release_group(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send | None = None,
) -> Awaitable[Refusal | None]:
    """Release those keys of the claim, which one request may touch: choose that request."""
    if claim.released_keys:
        part = tuple([key for key in part if key not in claim.released_keys])
        if not part:
            return _nothing()  # they are released already
    send = send or port.send
    if claim.maybe_released:
        send = partial(unanswered_releases.send_checked, port, claim, part, send)
    # No coroutine yet: one that is dropped by an exception from outside would cause a warning.
    work = partial(_request, port, claim, part, method, until, send)
    return with_fallbacks(port, claim, part, method, until, work)


def _request(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    send: Send,
) -> Awaitable[Refusal | None]:
    """Release keys of the claim by one request, or by those of another method."""
    if claim.queue_entry is None and method != "script":
        one = transaction if method == "transaction" else native
        work = partial(one, port, claim, part[0], until)
        return unanswered_releases.unless_explained(claim, part[0], work)
    now = port.now()
    note = Sending(setattr, claim, "release_sent", (part, now))  # as ``sent_releases`` does
    if claim.queue_entry is not None:
        return cancel(port, claim, claim.queue_entry, until, partial(send, sending=note))
    verb: str = "release"
    details: tuple[str | int, ...] = record_arguments(port, claim)
    left = claim.min_hold_left(now) if claim.held_until > -math.inf else 0
    if left:
        verb, details = "min_hold", (left, *details)
    read = partial(unanswered_releases.unexplained, claim, part)
    sending = None if port.may_resend and relies_on_record(claim) else note
    request = partial(ask, port, verb, claim, with_notes(part), *details)
    return request(until=until, read=read, send=send, sending=sending)


async def _nothing() -> None:
    """Release nothing."""
