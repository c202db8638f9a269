"""Renewing many leases at once: each is renewed, lost, or its outcome is not known."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any, NamedTuple

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, ask, is_torn, refusal_of
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import slot_of

#: The most keys that one script renews: it keeps the server from everybody else.
MOST_KEYS = 500

#: None: it was renewed. Refusal: it is lost. Exception: it is not known.
Outcome = Refusal | Exception | None


class Renewal(NamedTuple):
    """A claim to renew, and for how many seconds."""

    claim: Claim
    seconds: float


class Unasked(Exception):
    """Nobody has asked the server about a key: what became of it is not known."""


class _Key(NamedTuple):
    """One key of the renewal at a place in the list."""

    place: int
    key: bytes
    renewal: Renewal


async def renew(port: Port, renewals: list[Renewal], until: float) -> list[Outcome]:
    """Let the leases last so long from now; the outcome of each, in their order.

    Requests for several nodes or slots travel side by side, and none waits for another.
    """
    parts = list(_parts(port, renewals))
    found = await port.gather([_renew(port, part, until) for part in parts])
    answers: list[list[Outcome]] = [[] for _ in renewals]
    for part, outcomes in zip(parts, found, strict=True):
        for key, outcome in zip(part, outcomes, strict=True):
            answers[key.place].append(outcome)
    return [_worst(*answer) for answer in zip(renewals, answers, strict=True)]


async def _renew(port: Port, part: list[_Key], until: float) -> list[Outcome]:
    """What became of keys that one script may touch, in their order."""
    details: list[int | str] = []
    for _, _, (claim, seconds) in part:
        details += (claim.identifier, durations.milliseconds(seconds))
    keys = tuple([key.key for key in part])
    # By an identifier of its own: a lease's may be passed on while this is under way.
    request = claim_on(keys[0], 1.0)
    began = port.now()

    def send(*command: Any, until: float) -> Awaitable[Any]:
        # That the script is not known is an answer: the server can only be silent since then.
        return port.send(*command, until=until + (port.now() - began))

    outcomes: list[Outcome] = [None] * len(part)  # what the script does not name it has renewed
    try:
        read = partial(_note_lost, outcomes)
        await ask(port, "renew", request, keys, *details, until=until, read=read, send=send)
    except Exception as error:
        if len(part) == 1 or not is_torn(port, error):
            return [error] * len(part)
        # No script may touch several keys while their slot is moving.
        found = await port.gather([_renew(port, [key], until) for key in part])
        return [outcome for (outcome,) in found]
    return outcomes


def _note_lost(outcomes: list[Outcome], *client_state: Any) -> None:
    for at, holder in zip(client_state[::2], client_state[1::2], strict=True):
        outcomes[at] = refusal_of(holder)


def _parts(port: Port, renewals: list[Renewal]) -> Iterator[list[_Key]]:
    """The keys, as many together as one script may touch; two leases may be of one key."""
    slots: dict[int, list[_Key]] = {}
    for place, renewal in enumerate(renewals):
        for key in renewal.claim.keys:
            slot = slot_of(key) if port.slotted else 0
            slots.setdefault(slot, []).append(_Key(place, key, renewal))
    for _, keys in sorted(slots.items()):
        for start in range(0, len(keys), MOST_KEYS):
            yield keys[start : start + MOST_KEYS]


def _worst(renewal: Renewal, answers: list[Outcome]) -> Outcome:
    """The outcome of a lease with several keys: lost if any is, unknown if any is."""
    for answer in answers:
        if isinstance(answer, Refusal):
            return answer
    if len(answers) != len(renewal.claim.keys):
        return Unasked("no request was sent for it")
    return next((answer for answer in answers if answer is not None), None)
