"""Requests to the server: each ends as yes, no (a Refusal) or unknown (an exception)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import six

from redis_lock_decorators import _lua
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim import Claim, refuse_fork
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.port import Port, Sending
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, second_limits
from redis_lock_decorators._rules import keys as keys_rules
from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.errors import LockError, LockNameError, shown

#: ``Port.send`` or a replacement.
Send = Callable[..., Awaitable[Any]]
#: Raised if stack or memory do not suffice for a release; another thread may have enough.
EXHAUSTED = (RecursionError, MemoryError)
#: Why a key that is not a lock refuses a request.
OTHER_DATA = "its key holds other data, no lock"


#: Argument of the script ``time_left``: a replica must not answer.
FROM_MASTER = 1


class Refusal(NamedTuple):
    """A "no": the holder of the key, if any, and the longest time in seconds until it is free."""

    holder: str | None
    free_in: float | None = None
    why: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether the key exists, with another value."""
        return self.holder is not None or self.why == OTHER_DATA


class ReplyMismatch(LockError):
    """The reply belonged to another command, so the outcome of this one is unknown."""


#: The beginning of the message of ``OtherData``.
OF_KEY = "the key of lock "


class OtherData(LockNameError):
    """The key of a lock, or a companion key, has data of another type."""

    def __init__(self, lock_name: str, error: object = "", keys: Sequence[bytes] = ()) -> None:
        if not error and lock_name.startswith(OF_KEY):  # recreated from its message
            super().__init__(lock_name)
            return
        companions = ", ".join(keys_rules.companion_endings(keys))
        others = f" (or a companion key, by its ending: {companions})" if companions else ""
        sentence = (
            f"{OF_KEY}{shown(lock_name)}{others} holds other data, no lock: "
            "choose another name or prefix"
        )
        super().__init__(f"{sentence} ({safe_text(error)})" if error else sentence, lock_name)


class NeverSent(LockError):
    """The request was not sent in time, because others were queued before it."""

    unsent = True


def is_unknown(port: Port, error: Exception) -> bool:
    """Whether the server may have run, or may still run, the request that failed."""
    if isinstance(error, (ReplyMismatch, NeverSent)):
        return port.is_outcome(error)
    return port.is_unknown(error)


def may_have_run(port: Port, error: Exception) -> bool:
    """Whether a server may have run the request that failed, or an earlier copy of it.

    An error reply such as READONLY or LOADING means that this copy was not run: it is only worth a
    repetition. A client that resends requests on its own may have sent another copy before.
    """
    if not (is_unknown(port, error) and port.was_sent(error)):
        return False
    return port.may_resend or not port.is_answer(error)


def refusal_of(holder: Any, milliseconds: int | None = None) -> Refusal:
    """The refusal in a script's reply; a holder of 0 means other data."""
    kind = type(holder)
    if kind is int:
        return Refusal(None, why=OTHER_DATA)
    # As by ``text``, but in one call: each waiter reads one.
    found = (holder.decode(errors="surrogateescape") if kind is bytes else text(holder)) or None
    if milliseconds is None:
        return Refusal(found)
    return Refusal(found, math.inf if milliseconds < 0 else milliseconds / 1000)


async def ask(
    port: Port,
    verb: str,
    claim: Claim,
    keys: tuple[bytes, ...],
    *details: int | str,
    until: float,
    read: Callable[..., Refusal | None] = refusal_of,
    send: Send | None = None,
    sending: Sending | None = None,
) -> Refusal | None:
    """Run one script for a claim. None: it was done.

    ``read`` is called with the rest of a longer reply; ``send`` replaces the port's, and gets
    ``sending`` if that is given.

    Raises:
        LockNotOwnedError: the caller is a copy of a task, in a forked child.
    """
    if claim.process != fork.process_id:  # checked here, so that most requests need no call
        refuse_fork(claim)
    serial = next(port.serials)
    send = send or port.send
    if claim.owner_info is not None:
        send = claim.owner_info.storing(port, claim, verb, keys, send)
    script = _lua.script(verb)
    # Built before the request is sent: a cohort may hand off the claim's identifier meanwhile.
    mark = f"{claim.identifier}:{serial}"
    options = {"until": until} if sending is None else {"until": until, "sending": sending}
    had_asked, claim.has_asked = claim.has_asked, True
    form, body = ("EVAL", script.text) if claim.sends_text else ("EVALSHA", script.sha)
    command = (form, body, len(keys), *keys, claim.identifier, serial, *details)
    try:
        try:
            reply = await send(*command, **options)
        except Exception as error:
            if port.lacks(error) != "script":
                if not (claim.sends_text and is_forbidden(port, error)):
                    raise
                reply = await _send_digest(port, send, script, command, options, error)
            else:
                options["until"] = second_limits(until, port.now() + ROUND_TRIP)
                reply = await send("EVAL", script.text, *command[2:], **options)
        # Clients with ``decode_responses`` return text.
        own = (mark.encode("utf-8", "surrogateescape"), mark)
        if type(reply) is not list:
            if reply in own:
                return None
        elif len(reply) > 1 and reply[0] in own:
            return read(*reply[1:])
    except BaseException as error:
        if not port.was_sent(error):
            claim.has_asked = had_asked
        port.withdraw(claim.identifier, error, sending)
        if isinstance(error, Exception):
            refuse_fork(claim)  # a signal handler may have forked meanwhile
            if port.lacks(error) == "right":
                port.rights.has_get = False
            if port.lacks(error) == "string":
                raise OtherData(claim.lock_name, error, keys) from error
        if sending is not None and not port.is_outcome(error):
            late = port.late_reply(sending)
            if late is not None:
                claim.late_reply = late, mark, read
        raise
    await port.drop_idle_connections()
    raise ReplyMismatch(f"a reply to another command arrived for {verb}", claim.lock_name)


async def _send_digest(
    port: Port,
    send: Send,
    script: _lua.Script,
    command: tuple[Any, ...],
    options: dict[str, Any],
    forbidden: Exception,
) -> Any:
    """Send a script by its digest to a server that has ``forbidden`` its text."""
    try:
        return await send("EVALSHA", script.sha, *command[2:], **options)
    except Exception as error:
        if port.lacks(error) != "script":
            raise
    raise forbidden


async def get(port: Port, key: bytes, lock_name: str, until: float) -> Any:
    """The value of a key.

    Raises:
        OtherData: it is no string, so the key is not a lock.
    """
    try:
        return await port.send("GET", key, until=until)
    except Exception as error:
        if port.lacks(error) != "string":
            raise
        raise OtherData(lock_name, error) from error


def raise_failure(replies: Iterable[Any]) -> None:
    """Raise the first error among replies."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


def is_forbidden(port: Port, error: Exception) -> bool:
    """Whether this user must not run scripts, or the commands in them."""
    return port.lacks(error) in ("command", "right")


def is_slot_moving(port: Port, error: Exception) -> bool:
    """Whether the request failed because its keys are on two nodes: their slot is moving."""
    return port.lacks(error) in ("keys", "moved key")


def record_arguments(port: Port, claim: Claim) -> tuple[str, ...]:
    """Arguments of a release script: what it records a release of a lock with waiters as.

    A client that resends requests on its own may send a second copy when the lock is gone. Only a
    record shows then whether the first copy or another client ended it, so "always" requests a
    record even without waiters. So does the rest, for an identifier that others may use: if the key
    holds it after the first copy, the lock is another holder's ("shared"). It is so too if another
    acquisition got the identifier last ("unless other"), or if this one is not known to have got it
    ("if own").
    """
    if not claim.releaser:
        claim.releaser = new_identifier()
    if claim.shares_identifier:
        if not claim.got_shared_identifier:
            return claim.releaser, "shared"
        is_strict = claim.may_be_unsettled or port.now() >= claim.recorded_until
        return claim.releaser, "if own" if is_strict else "unless other"
    if port.may_resend:
        return claim.releaser, "always"
    return () if claim.releaser == claim.identifier else (claim.releaser,)


async def cancel(
    port: Port, claim: Claim, entry: str, until: float, send: Send | None = None
) -> Refusal | None:
    """Remove a queue entry, and release the lock if it was granted meanwhile.

    While the slot is moving the entry remains: one grant to it may have to expire.
    """
    try:
        keys = keys_rules.with_queue(claim.keys)
        return await ask(port, "cancel", claim, keys, entry, until=until, send=send)
    except Exception as error:
        if not is_slot_moving(port, error):
            raise
    for key in claim.keys:
        await unlock(port, claim, key, until, send=send)
    return None


def unlock(
    port: Port,
    claim: Claim,
    key: bytes,
    until: float,
    milliseconds: int = 0,
    send: Send | None = None,
    *ends: int,
) -> Awaitable[Refusal | None]:
    """Release a key without its companion keys, as its slot is moving or the user lacks rights.

    It has a min-hold placeholder for so many ``milliseconds`` then. The release is not recorded in
    the server. If ``ends`` has the end of the lock, in Unix milliseconds, it must be that.
    """
    return ask(port, "unlock", claim, (key,), milliseconds, *ends, until=until, send=send)


def worst(refusals: Iterable[Refusal]) -> Refusal | None:
    """The most informative refusal: one by another holder, if any; None if there are none."""
    return max(refusals, key=lambda refusal: (refusal.is_taken, refusal.holder or ""), default=None)


def enter(
    port: Port,
    claim: Claim,
    entry: str,
    milliseconds: int,
    until: float,
    read: Callable[..., Refusal | None] = lambda holder, left, is_queued: refusal_of(holder, left),
) -> Awaitable[Refusal | None]:
    """Check whether a lock was granted to a queue entry, and note that its waiter knows.

    If so, extend it to so many milliseconds from now; 0 leaves its lease unchanged.
    """
    keys = keys_rules.with_queue(claim.keys)
    return ask(port, "enter", claim, keys, milliseconds, entry, until=until, read=read)


def groups(port: Port, claim: Claim) -> list[tuple[bytes, ...]]:
    """The claim's keys, grouped so that one script may use each group."""
    return keys_rules.by_slot(claim.keys) if port.slotted else [claim.keys]


def text(value: Any) -> str | None:
    """A text reply, decoded or not; None for "" and other types."""
    return found_text(value) or None


def found_text(value: Any) -> str | None:
    """The value of a key, which may be ""; None if there is no key."""
    if isinstance(value, (str, bytes)):
        return str(six.ensure_str(value, errors="surrogateescape"))
    return None
