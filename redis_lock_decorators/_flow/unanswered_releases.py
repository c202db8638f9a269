"""Releases without a reply: what they may have done, and which later refusals that explains."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import GOT_LAST, REST
from redis_lock_decorators._flow.port import Port, Sending
from redis_lock_decorators._flow.requests import (
    Refusal,
    Send,
    ask,
    is_forbidden,
    may_have_run,
    refusal_of,
    text,
    worst,
)
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators._rules.options import ReleaseMethod


def forget_unsent(port: Port, claim: Claim, error: BaseException) -> None:
    """Forget that a request was sent if it failed before its first byte was."""
    if not port.was_sent(error):
        claim.release_sent = None


def record_unanswered(port: Port, claim: Claim, error: Exception) -> None:
    """Record that a request of ours, sent and not answered, may have released its keys."""
    if claim.release_sent is not None and may_have_run(port, error):
        claim.note_maybe_released(*claim.release_sent)


def record_usual(port: Port, claim: Claim, method: ReleaseMethod, error: Exception) -> None:
    """As ``record_unanswered``, for a request by the claim's own release method.

    If the client may resend requests, the release script records every release in the server, in
    one step: keys that are gone without a record were not released by it. No client resends EXEC,
    so an error reply to that means that it was not run.
    """
    if not port.may_resend or (method == "transaction" and not port.is_answer(error)):
        record_unanswered(port, claim, error)
    if port.is_outcome(error):
        claim.release_sent = None


async def send_checked(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    send: Send,
    *command: Any,
    until: float,
    sending: Sending | None = None,
) -> Any:
    """Repeat a script, and check that the server may have run it before.

    Its digest is sent before its text, without a wait between them: the reply to the digest shows
    whether the server knows the script, and the text is run if it does not. The sender may be gone
    by then. A script that is run twice does nothing the second time.

    A server that does not know the script has not run it, unless it was restarted or its scripts
    were flushed, or is a replica that took the place of the server that ran it: replicas get the
    effects of a script, not the script. A missing key may then be a loss just as well, as a replica
    may not have received the lock. So it is reported as one.
    """
    is_recorded_there = port.may_resend or port.slotted
    if command[0] != "EVAL" or is_recorded_there:
        try:
            return await send(*command, until=until, sending=sending)
        except Exception as error:
            if port.lacks(error) == "script":
                _note_not_run(claim, part)
            raise
    digest = ("EVALSHA", _lua.digest(command[1]), *command[2:])
    known, reply = await port.send_together(digest, command, until=until, sending=sending)
    if not isinstance(known, Exception):
        return known
    if port.lacks(known) == "script":
        _note_not_run(claim, part)
    if isinstance(reply, Exception):
        raise known if is_forbidden(port, reply) and port.lacks(known) != "script" else reply
    return reply


def _note_not_run(claim: Claim, part: tuple[bytes, ...]) -> None:
    """Note that an earlier request for these keys was not run."""
    claim.maybe_released = tuple([key for key in claim.maybe_released if key not in part])


async def send_unrecorded(
    port: Port,
    claim: Claim,
    key: bytes,
    until: float,
    send: Callable[[], Awaitable[Refusal | None]],
) -> Refusal | None:
    """Release a key by requests that leave no record in the server.

    If the client sends a copy of one on its own, the copy finds no key, as after a loss. So it asks
    first whether the key is held: if it is, a missing key was released by the first copy.
    """
    before, is_to_check = claim.maybe_released, port.may_resend and port.now() < claim.deadline
    if is_to_check and key not in before and await _is_held(port, claim, key, until):
        claim.note_maybe_released((key,), port.now())
    noted = claim.maybe_released
    try:
        return await send()
    except Exception as error:
        is_unsent = port.is_outcome(error) and not may_have_run(port, error)
        if is_unsent and claim.maybe_released is noted:
            claim.maybe_released = before
        raise


async def _is_held(port: Port, claim: Claim, key: bytes, until: float) -> bool:
    """Whether a key holds the identifier; True if the user has no right to ask."""
    try:
        # To extend it to at least a millisecond changes nothing, and no replica answers.
        return await ask(port, "extend", claim, (key,), 1, until=until) is None
    except Exception as error:
        if not is_forbidden(port, error):
            raise
        return True


async def is_recorded(port: Port, claim: Claim, key: bytes, until: float) -> bool:
    """Whether the server recorded that the release script released a key for this claim.

    If the client sends a copy of the script on its own, and the server refuses that, the record is
    all that is known of the first copy. It is one key, so it can be read while its slot is moving.
    """
    if not (port.may_resend and claim.releaser):
        return False
    *_, records = with_notes((key,))
    try:
        score = await port.send("ZSCORE", records, claim.releaser, until=until)
    except Exception as error:
        if not port.lacks(error):
            raise
        return False
    return score is not None


async def whose_lock(
    port: Port, claim: Claim, key: bytes, until: float
) -> Literal["own", "another", "none", "unknown"]:
    """Whose lock it is, by the server's record, if its key has the identifier of this claim.

    Others may use the identifier. "none" means that the release script has released the own one. It
    is one key, so it can be read while its slot is moving.
    """
    if not claim.got_shared_identifier:
        return "unknown"
    *_, records = with_notes((key,))
    try:
        found = await port.send("ZRANGE", records, 0, 0, until=until)
        last = (text(found[0]) or "") if found else ""
        if last.startswith(GOT_LAST):
            return "own" if last == GOT_LAST + claim.releaser else "another"
        is_released = await port.send("ZSCORE", records, claim.releaser, until=until) is not None
    except Exception as error:
        if not port.lacks(error):
            raise
        return "unknown"
    return "none" if is_released else "unknown"


def unexplained(claim: Claim, part: tuple[bytes, ...], *refused: Any) -> Refusal | None:
    """The worst refusal in a script's reply, without those that an earlier request explains.

    ``refused`` has, for each key that was not released, its number in ``part`` and its holder.
    """
    claim.release_sent = None  # first, as an exception from outside may come at the next line
    keys = [part[number] for number in refused[::2]]
    found = zip(keys, map(refusal_of, refused[1::2]), strict=True)
    return worst([refusal for key, refusal in found if not explains(claim, key, refusal)])


async def unless_explained(
    claim: Claim, key: bytes, work: Callable[[], Awaitable[Refusal | None]]
) -> Refusal | None:
    """The refusal by which the release of one key ended; None if an earlier request explains it."""
    refusal = await work()
    return None if refusal is None or explains(claim, key, refusal) else refusal


def explains(claim: Claim, key: bytes, refusal: Refusal) -> bool:
    """Whether a key is as an earlier request of ours would have left it.

    If another client holds it, that may have acquired it before our request or after it, which
    counts as a loss. Requests that the client itself repeats need no explanation here: the script
    knows them by what the first of them recorded.
    """
    if refusal.is_taken:
        return claim.held_until > -math.inf and refusal.holder == min_hold_placeholder(claim)
    return key in claim.maybe_released or key in claim.released_keys


def min_hold_placeholder(claim: Claim) -> str:
    """The value of a released key until the end of its ``min_hold``."""
    return claim.identifier + REST
