"""Renewing many leases at once: each is renewed, lost, or its outcome is not known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import Refusal, ask, text
from redis_lock_decorators.rules import durations
from redis_lock_decorators.rules.keys import by_slot

#: The most keys that one script renews: it keeps the server from everybody else.
MOST_KEYS = 500

#: None: it was renewed. Refusal: it is lost. Exception: it is not known.
Outcome = Refusal | Exception | None


class Renewal(NamedTuple):
    """A claim to renew, and for how many seconds."""

    claim: Claim
    seconds: float


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
    outcomes: list[Outcome] = [None] * len(renewals)
    for part, answer in zip(parts, found, strict=True):
        for place, outcome in answer.items() if isinstance(answer, dict) else _all(part, answer):
            outcomes[place] = _worse(outcomes[place], outcome)
    return outcomes


async def _renew(port: Port, part: list[_Key], until: float) -> dict[int, Outcome] | Exception:
    """What was lost, by the place of the renewal; or the error that leaves it unknown."""
    details: list[int | str] = []
    for _, _, (claim, seconds) in part:
        details += (claim.identifier, durations.milliseconds(seconds))
    keys, first = tuple([key.key for key in part]), part[0].renewal.claim
    lost: dict[int, Outcome] = {}
    try:
        read = partial(_note_lost, lost, part)
        await ask(port, "renew", first, keys, *details, until=until, read=read)
    except Exception as error:
        return error
    return lost


def _note_lost(lost: dict[int, Outcome], part: list[_Key], *facts: Any) -> None:
    for at, holder in zip(facts[::2], facts[1::2], strict=True):
        lost[part[at].place] = Refusal(text(holder))


def _parts(port: Port, renewals: list[Renewal]) -> Iterator[list[_Key]]:
    """The keys, as many together as one script may touch."""
    keys = [
        _Key(place, key, renewal)
        for place, renewal in enumerate(renewals)
        for key in renewal.claim.keys
    ]
    slots: list[list[_Key]] = [keys]
    if port.slotted:
        found = {key.key: key for key in keys}
        slots = [[found[key] for key in group] for group in by_slot(found)]
    for slot in slots:
        for start in range(0, len(slot), MOST_KEYS):
            yield slot[start : start + MOST_KEYS]


def _all(part: list[_Key], error: Exception) -> list[tuple[int, Outcome]]:
    return [(key.place, error) for key in part]


def _worse(one: Outcome, other: Outcome) -> Outcome:
    """The outcome of a lease with several keys: lost if any is, unknown if any is."""
    if isinstance(one, Refusal) or other is None:
        return one
    return other
