"""Renew many leases together: each is renewed, lost, or its outcome is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any, NamedTuple

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.owner_info import Stored, renewing
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import (
    Refusal,
    ask,
    is_forbidden,
    is_slot_moving,
    refusal_of,
)
from redis_lock_decorators._flow.timeouts import delayed_limits
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import slot_of

#: The most keys that one script renews: no other client is served meanwhile.
MOST_KEYS = 500

#: None: renewed. Refusal: lost. Exception: unknown.
Outcome = Refusal | Exception | None


class Renewal(NamedTuple):
    """A claim to renew, and for how many seconds.

    Attributes:
        sends_text: the script is sent as text, which the server may not know yet: over a slow link
            there may be no time for another round trip, after those of other batches.
    """

    claim: Claim
    seconds: float
    sends_text: bool = False


class NotRequested(Exception):
    """No request was sent about a key, so its outcome is unknown."""


class _Key(NamedTuple):
    """One key of the renewal at this position of the list."""

    number: int
    key: bytes
    renewal: Renewal


async def renew(port: Port, renewals: list[Renewal], until: float) -> list[Outcome]:
    """Extend each lease to its seconds from now; the outcome of each, in their order.

    Requests for several nodes or slots are sent concurrently.
    """
    parts = list(_parts(port, renewals))
    found = await port.gather([_renew(port, part, until) for part in parts])
    answers: list[list[Outcome]] = [[] for _ in renewals]
    for part, outcomes in zip(parts, found, strict=True):
        for key, outcome in zip(part, outcomes, strict=True):
            answers[key.number].append(outcome)
    return [_worst(*answer) for answer in zip(renewals, answers, strict=True)]


async def _renew(port: Port, part: list[_Key], until: float) -> list[Outcome]:
    """Renew keys by one script; the outcome of each, in their order."""
    details: list[int | str] = []
    stored: list[Stored] = []  # the information about holders
    began = port.now()
    for number, (_, key, (claim, seconds, _)) in enumerate(part, 1):
        # A lease's identifier may be handed off while this is under way.
        identifier = claim.identifier
        details += (identifier, durations.milliseconds(seconds))
        if claim.owner_info is not None and identifier:
            text = claim.owner_info.text(claim, began)
            stored.append(Stored(number, key, identifier, text))
    keys = tuple([key.key for key in part])
    request = claim_on(keys[0], 1.0)
    request.sends_text = any(key.renewal.sends_text for key in part)

    def send(*command: Any, until: float) -> Awaitable[Any]:
        # NOSCRIPT is a reply too, so the time without one counts from there.
        return port.send_renewal(*command, until=delayed_limits(until, port.now() - began))

    outcomes: list[Outcome] = [None] * len(part)  # the reply names only keys that are lost
    try:
        read = partial(_note_lost, outcomes)
        own = renewing(port, stored, send) if stored else send
        await ask(port, "renew", request, keys, *details, until=until, read=read, send=own)
    except Exception as error:
        if len(part) == 1 or not (is_slot_moving(port, error) or is_forbidden(port, error)):
            return [error] * len(part)
        # While their slot is moving, each key needs its own script. A right may be missing for one.
        found = await port.gather([_renew(port, [key], until) for key in part])
        return [outcome for (outcome,) in found]
    return outcomes


def _note_lost(outcomes: list[Outcome], *reply: Any) -> None:
    for index, holder in zip(reply[::2], reply[1::2], strict=True):
        outcomes[index] = refusal_of(holder)


def _parts(port: Port, renewals: list[Renewal]) -> Iterator[list[_Key]]:
    """The keys, as many together as one script may renew; two leases may have the same key."""
    slots: dict[int, list[_Key]] = {}
    for number, renewal in enumerate(renewals):
        for key in renewal.claim.keys:
            slot = slot_of(key) if port.slotted else 0
            slots.setdefault(slot, []).append(_Key(number, key, renewal))
    for _, keys in sorted(slots.items()):
        for start in range(0, len(keys), MOST_KEYS):
            yield keys[start : start + MOST_KEYS]


def _worst(renewal: Renewal, answers: list[Outcome]) -> Outcome:
    """The outcome of a lease with several keys: lost if any is, unknown if any is."""
    for answer in answers:
        if isinstance(answer, Refusal):
            return answer
    if len(answers) != len(renewal.claim.keys):
        return NotRequested("no request was sent for it")
    return next((answer for answer in answers if answer is not None), None)
