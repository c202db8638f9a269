"""The information about its holder that a claim stores next to its keys, in its own requests."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from redis_lock_decorators import _lua
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._rules.owner_info import KIND, with_times

#: The verbs after which the keys may hold the claim's identifier.
_STORING = ("acquire", "acquire_fenced", "enqueue", "enter", "extend")
#: The verbs after which they do not.
_REMOVING = ("release", "min_hold", "cancel")
#: As of ``requests``.
Send = Callable[..., Awaitable[Any]]


class Stored(NamedTuple):
    """The information that a request stores for one of its keys.

    Attributes:
        number: the number of the key in the request, from 1.
        key: the lock key.
        identifier: the identifier of the holder; "" if it is that of the request.
        text: the information, after a "*" if the reply has its fence; "" to remove it.
    """

    number: int
    key: bytes
    identifier: str
    text: str


class OwnerInfo:
    """The information about the holder of one claim.

    Attributes:
        is_refused: the server refuses requests with it, so it is not sent.
        is_stored: the last request stored it.
        other: what the last request found about another holder, as it is stored; None if nothing.
    """

    __slots__ = (
        "_epoch",
        "_of_holder",
        "_of_process",
        "_since",
        "is_refused",
        "is_stored",
        "other",
    )

    def __init__(self, epoch: float, of_holder: str, of_process: str) -> None:
        """Make the information of a claim that is about to be acquired.

        Args:
            epoch: the Unix time at which the monotonic clock was 0, in seconds.
            of_holder: the fields about the thread or task, written.
            of_process: the fields about the process alone, written: all members of a cohort have
                them in common.
        """
        self._epoch = epoch
        self._of_holder = of_holder
        self._of_process = of_process
        self._since = -math.inf  # when the last request to acquire the lock was sent
        self.is_refused = False
        self.is_stored = False
        self.other: Any = None

    def time(self, now: float) -> float:
        """The Unix time at the monotonic time ``now``."""
        return self._epoch + now

    def storing(
        self, port: Any, claim: Any, verb: str, keys: tuple[bytes, ...], send: Send
    ) -> Send:
        """Return a replacement of ``send`` that also stores or removes the information.

        A verb that does neither is sent as it is.
        """
        if self.is_refused or not (verb in _STORING or verb in _REMOVING):
            return send
        text = "*" if verb == "acquire_fenced" else ""
        if verb in _STORING:
            text += self.text(claim, port.now())
        stored = [
            Stored(number, key, "", text) for number, key in enumerate(keys, 1) if key in claim.keys
        ]
        return partial(_send, port, verb, stored, self._note, send)

    def text(self, claim: Any, now: float) -> str:
        """The information as a request at ``now`` stores it.

        While a cohort may hand off the lock to another thread or task without a request, only what
        is common to all of them is stored.
        """
        if not claim.was_held():
            self._since, text = now, self._of_process if claim.cohort else self._of_holder
            return with_times(text, self.time(now), None)
        is_fixed = claim.cohort is None or not claim.cohort.may_hand_off_at(now)
        since = self._since if self.is_stored else claim.entered
        text = self._of_holder if is_fixed else self._of_process
        return with_times(text, self.time(since), claim.fence)

    def is_complete(self, claim: Any) -> bool:
        """Whether the claim's acquisition has stored all of it."""
        return self.is_refused or (self.is_stored and claim.cohort is None)

    def _note(self, other: Any, stored: bool | None) -> None:
        if stored is None:
            self.is_refused = True
            return
        self.other, self.is_stored = other or None, stored


def renewing(port: Any, stored: list[Stored], send: Send) -> Send:
    """Return a replacement of ``send`` that also stores the information about renewed leases."""
    return partial(_send, port, "renew", stored, _ignore, send)


def removing(port: Any, verb: str, key: bytes, identifier: str) -> Send:
    """Return a replacement of ``port.send`` that also removes the information about a holder."""
    return partial(_send, port, verb, [Stored(1, key, identifier, "")], _ignore, port.send)


def _ignore(other: Any, stored: bool | None) -> None:
    """Note nothing."""


async def _send(
    port: Any,
    verb: str,
    stored: list[Stored],
    note: Callable[[Any, bool | None], None],
    send: Send,
    *command: Any,
    **options: Any,
) -> Any:
    """Send a script together with information about holders; if that is refused, without it."""
    name, _, count, *rest = command
    script = _lua.with_owner_info(verb)
    companions = [companion(one.key, KIND) for one in stored]
    arguments = [item for one in stored for item in (one.number, one.identifier, one.text)]
    try:
        reply = await send(
            *(name, script.sha if name == "EVALSHA" else script.text, count + len(companions)),
            *(*rest[:count], *companions, *rest[count:], *arguments, len(companions)),
            **options,
        )
    except Exception as error:
        lacks = port.lacks(error)
        is_slot_moving = (
            lacks == "keys" and count == 1
        )  # its slot is moving: one key needs no other
        if not is_slot_moving and lacks not in ("command", "right"):
            raise
        reply = await send(*command, **options)  # raises if the script is forbidden, too
        if not is_slot_moving:
            note(None, None)
        return reply
    own = verb_reply(reply)
    if own is reply:
        note(None, True)
    else:
        note(reply[2], reply[0] == len(companions))
    return own


def verb_reply(reply: Any) -> Any:
    """Return the reply of the verb that is in the reply to a request with information."""
    if type(reply) is list and len(reply) == 3 and type(reply[0]) is int:
        return reply[1]
    return reply
