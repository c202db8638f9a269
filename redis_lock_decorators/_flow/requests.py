"""Requests to the server: each ends as yes, no (a Refusal) or unknown (an exception)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import six

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.timeouts import Until, extended, repeated
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules import keys as keys_rules
from redis_lock_decorators.errors import LockError, LockNameError, shown

T = TypeVar("T")
#: ``Port.send`` or what stands for it.
Send = Callable[..., Awaitable[Any]]
#: Called with the error of an attempt and the time at which that began.
Failed = Callable[[Exception, float], object]

#: Seconds after which a server that does not answer is given up: longer than a failover takes.
OUTAGE = 5.0
#: What a stack or a memory without room for a release raises: another thread has room.
EXHAUSTED = (RecursionError, MemoryError)
#: The least time, in seconds, that a request gets for its reply, however short the caller's wait.
ROUND_TRIP = 1.0
#: Seconds for which what is left behind waits for its turn to be tidied up, while the server
#: answers others: many may give up at once.
TIDYING = 30.0


#: What lies in a key that is no lock.
OTHER_DATA = "its key holds other data, no lock"


class Refusal(NamedTuple):
    """A "no": who holds the key instead, and for how many seconds at most; None is "nobody"."""

    holder: str | None
    free_in: float | None = None
    why: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether something else is in the key, and not nothing."""
        return self.holder is not None or self.why == OTHER_DATA


class ReplyMismatch(LockError):
    """The reply belonged to another command, so what became of this one is not known."""


class OtherData(LockNameError):
    """What lies in the key of a lock is no lock."""

    def __init__(self, lock_name: str, error: object = "") -> None:
        sentence = (
            f"the key of lock {shown(lock_name)} holds other data, no lock: choose another "
            f"name or prefix"
        )
        super().__init__(f"{sentence} ({error})" if error else sentence, lock_name)


class NeverSent(LockError):
    """The request did not leave in time, for others were before it: it was not done."""

    unsent = True


async def persist(
    port: Port,
    attempt: Callable[[float], Awaitable[T]],
    end: float,
    failed: Failed | None = None,
) -> T:
    """Repeat ``attempt(until)`` while its outcome is unknown, not past ``end`` nor an outage.

    Every request here may be sent twice: the server does it once. ``failed`` is told the error of
    every attempt, and when that began.
    """
    started = port.now()
    until = first_until(started, end)
    try:
        return await attempt(until)
    except Exception as error:
        if not is_to_repeat(port, error, started, failed):
            raise
        return await repeat(port, attempt, until, end, error, failed)


def first_until(started: float, end: float) -> float:
    """How long the first attempt waits that begins at ``started``; none is begun past ``end``."""
    outage, least = started + OUTAGE, started + ROUND_TRIP
    stop = end if end < outage else outage
    until = stop if stop > least else least
    if until >= end:
        return until
    both = float.__new__(Until, until)  # the same as by its class, which every request would call
    both.end, both.is_repeated = end, False
    return both


def is_to_repeat(
    port: Port, error: Exception, started: float, failed: Failed | None = None
) -> bool:
    """Whether to ``repeat`` an attempt that failed; tells ``failed`` of it."""
    if failed is not None and port.is_outcome(error):
        failed(error, started)
    return is_unknown(port, error)


async def tidy(port: Port, attempt: Callable[[float], Awaitable[T]], until: Until) -> T:
    """Repeat ``attempt(until)``, which leaves nothing behind, while its outcome is unknown.

    No longer than ``until`` (see ``tidying``) on a server that is silent or away: what stays there
    ends by itself.
    """
    started = port.now()
    try:
        return await attempt(until)
    except Exception as error:
        if not is_unknown(port, error):
            raise
        return await repeat(port, attempt, until, until.end, error, None, until - started)


def tidying(port: Port, seconds: float) -> Until:
    """How long to try to leave nothing behind: on a server that is silent, so many seconds."""
    now = port.now()
    return Until(now + seconds, now + TIDYING)


def is_unknown(port: Port, error: Exception) -> bool:
    """Whether it is not known if the server did what it was asked, or could do it later."""
    return isinstance(error, (ReplyMismatch, NeverSent)) or port.is_unknown(error)


def may_have_run(port: Port, error: Exception) -> bool:
    """Whether a server may have done, or may do yet, what was asked with this outcome."""
    return is_unknown(port, error) and port.was_sent(error)


def refusal_of(holder: Any, milliseconds: int | None = None) -> Refusal:
    """What a script's reply says where it was not done; a holder of 0 is other data."""
    if type(holder) is int:
        return Refusal(None, why=OTHER_DATA)
    if milliseconds is None:
        return Refusal(text(holder))
    return Refusal(text(holder), math.inf if milliseconds < 0 else milliseconds / 1000)


async def ask(
    port: Port,
    verb: str,
    claim: Claim,
    keys: tuple[bytes, ...],
    *details: int | str,
    until: float,
    read: Callable[..., Refusal | None] = refusal_of,
    send: Send | None = None,
) -> Refusal | None:
    """Run one script for a claim. None: it was done.

    ``read`` is called with what a reply says beyond that, ``send`` takes the place of the port's.
    """
    serial = next(port.serials)
    send = send or port.send
    script = _lua.script(verb)
    # Made before the request leaves: a cohort may pass the claim's identifier on meanwhile.
    mark = f"{claim.identifier}:{serial}"
    command = ("EVALSHA", script.sha, len(keys), *keys, claim.identifier, serial, *details)
    try:
        try:
            reply = await send(*command, until=until)
        except Exception as error:
            if port.lacks(error) != "script":
                raise
            reply = await send("EVAL", script.text, *command[2:], until=until)
    except Exception as error:
        if port.lacks(error) != "string":
            raise
        raise OtherData(claim.lock_name, error) from error
    own = (mark.encode(), mark)  # as most clients give it, and as those that decode replies do
    if type(reply) is not list:
        if reply in own:
            return None
    elif len(reply) > 1 and reply[0] in own:
        return read(*reply[1:])
    await port.drop_idle_connections()
    raise ReplyMismatch(f"a reply to another command arrived for {verb}", claim.lock_name)


async def get(port: Port, key: bytes, lock_name: str, until: float) -> Any:
    """What a key holds.

    Raises:
        OtherData: that is no text, so it is no lock.
    """
    try:
        return await port.send("GET", key, until=until)
    except Exception as error:
        if port.lacks(error) != "string":
            raise
        raise OtherData(lock_name, error) from error


def is_forbidden(port: Port, error: Exception) -> bool:
    """Whether the server refuses to run scripts, or what they contain, for this user at all."""
    return port.lacks(error) in ("command", "right")


def is_torn(port: Port, error: Exception) -> bool:
    """Whether it was not done as its keys are at two nodes: their slot is moving."""
    return port.lacks(error) == "keys"


def noted(port: Port, claim: Claim) -> tuple[str | int, ...]:
    """What is said to a script that lets go: by what that is noted, if others wait.

    A client that repeats requests by itself may come a second time, when the lock is gone. Only a
    note can tell then whether the first time or somebody else ended it, though nobody waits.
    """
    if not claim.releaser:
        claim.releaser = new_identifier()
    if port.may_resend:
        return claim.releaser, 1
    return () if claim.releaser == claim.identifier else (claim.releaser,)


async def cancel(port: Port, claim: Claim, place: str, until: float) -> Refusal | None:
    """Leave a place in the queue, and let the lock go if it was handed over meanwhile.

    While the slot is moving the place stays: the lock may be handed over there once, and lapse.
    """
    try:
        keys = keys_rules.with_queue(claim.keys)
        return await ask(port, "cancel", claim, keys, place, until=until)
    except Exception as error:
        if not is_torn(port, error):
            raise
    await unlock(port, claim, claim.keys, 0, until)
    return None


async def unlock(
    port: Port, claim: Claim, keys: tuple[bytes, ...], milliseconds: int, until: float
) -> Refusal | None:
    """Let keys go each by itself, to stand for so long: their slot is moving."""
    found = []
    for key in keys:
        refusal = await ask(port, "unlock", claim, (key,), milliseconds, until=until)
        if refusal is not None:
            found.append(refusal)
    return worst(found)


def worst(refusals: Iterable[Refusal]) -> Refusal | None:
    """The refusal of several that says most: that another holds a key; None if there is none."""
    return max(refusals, key=lambda refusal: (refusal.is_taken, refusal.holder or ""), default=None)


def enter(
    port: Port,
    claim: Claim,
    place: str,
    milliseconds: int,
    until: float,
    read: Callable[..., Refusal | None] = lambda holder, left, stands: refusal_of(holder, left),
) -> Awaitable[Refusal | None]:
    """Learn whether a lock was handed over to the one who waited at ``place``, and have it noted.

    If so, it lives at least so many milliseconds from now; 0 leaves its lease as it is.
    """
    keys = keys_rules.with_queue(claim.keys)
    return ask(port, "enter", claim, keys, milliseconds, place, until=until, read=read)


def groups(port: Port, claim: Claim) -> list[tuple[bytes, ...]]:
    """The claim's keys, as many together as one script may touch."""
    return keys_rules.by_slot(claim.keys) if port.slotted else [claim.keys]


def text(value: Any) -> str | None:
    """A text reply whatever the client decodes; anything else, and "", is None."""
    return found_text(value) or None


def found_text(value: Any) -> str | None:
    """The same for what a key holds, which may be "": None if there is no key."""
    if isinstance(value, (str, bytes)):
        return str(six.ensure_str(value, errors="surrogateescape"))
    return None


async def repeat(
    port: Port,
    attempt: Callable[[float], Awaitable[T]],
    until: float,
    end: float,
    error: Exception,
    failed: Failed | None = None,
    outage: float = OUTAGE,
) -> T:
    """Attempt again after an ``error`` for which the outcome is unknown.

    A server that does not answer is given up after ``outage`` seconds.
    """
    until = repeated(extended(until, end, error, outage))
    stop = min(end, until)
    for pause in delays.recovering(port.random):
        now = port.now()
        # The first repetition has no pause and is always worth it: an idle connection was stale.
        if now >= until or (pause > 0 and now + pause >= stop):
            break
        await port.sleep(pause)
        began = port.now()
        try:
            return await attempt(until)
        except Exception as failure:
            if not port.is_outcome(failure):
                raise
            if failed is not None:
                failed(failure, began)
            # Of several outcomes, one that is unknown is told rather than one that is known.
            if port.was_sent(failure) or not port.was_sent(error):
                error = failure
            if not is_unknown(port, failure):
                break
    if isinstance(error, NeverSent) and port.now() < end:
        return await persist(port, attempt, end, failed)  # no outage: the server answers others
    raise error
