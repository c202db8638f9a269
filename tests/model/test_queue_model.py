"""Whatever happens to a few waiters: one holds at a time, none is forgotten, nothing is left."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from model.explorer import Explorer, Protocol, Violation
from model.scripts import Scripts, hint

APART, TOGETHER = (0, 1), (0, 0)
#: The shortest leases there are: fewer states for more waiters.
SHORT = Protocol(lease=1, grant=1)
#: Where there are too many states, this many of the nearest are looked at.
MANY = 40_000
EVERY_FAULT = {"crash": 1, "cut": 1, "timeout": 1, "lost cancel": 1, "copy": 1}


class Slow(Scripts):
    """Passes over one place in a call."""

    most = most_untold = 1


STEPWISE = replace(SHORT, scripts=Slow)
STATES = {
    "waiters of two processes": Explorer(APART, EVERY_FAULT),
    "waiters of one process": Explorer(TOGETHER, EVERY_FAULT),
    "beside one that publishes": Explorer(APART, {"forgery": 1, "replay": 1, "cut": 1}),
    "beside one that publishes, in one process": Explorer(
        TOGETHER, {"forgery": 2, "replay": 1, "timeout": 1}
    ),
    "two cuts": Explorer(APART, {"cut": 2, "copy": 1}),
    "behind one that tells nobody": Explorer(TOGETHER, {}, stranger=1),
    "behind another, a cut": Explorer(TOGETHER, {"cut": 1}, SHORT, stranger=1),
    "behind another, a copy": Explorer(TOGETHER, {"copy": 1}, SHORT, stranger=1),
    "behind another, a crash": Explorer(TOGETHER, {"crash": 1, "timeout": 1}, SHORT, stranger=1),
    "holders that renew": Explorer(TOGETHER, {"cut": 1, "copy": 1}, renews=True),
    "one place in a call": Explorer(APART, EVERY_FAULT, replace(Protocol(), scripts=Slow)),
    "one place in a call, in one process": Explorer(
        TOGETHER, {"crash": 1, "cut": 1, "timeout": 1}, STEPWISE, stranger=1
    ),
    "one place in a call, three processes": Explorer(
        (0, 1, 2), {"crash": 1, "lost cancel": 1}, STEPWISE, most=MANY
    ),
    "two processes behind another": Explorer(APART, {"cut": 1}, SHORT, stranger=1, most=MANY),
    "three waiters": Explorer((0, 0, 1), EVERY_FAULT, SHORT, most=MANY),
    "three processes": Explorer((0, 1, 2), {"crash": 1}, SHORT, most=MANY),
}
#: Half a million to one and a half million states: minutes.
LARGE = {
    "two processes behind another": Explorer(APART, {}, SHORT, stranger=1),
    "three waiters": Explorer((0, 0, 1), {}, SHORT),
    "three processes": Explorer((0, 1, 2), {}, SHORT),
}


@pytest.mark.parametrize("explorer", STATES.values(), ids=STATES.keys())
def test_every_state_is_safe_and_leads_to_the_end(explorer: Explorer) -> None:
    assert explorer.explore() > 1000


@pytest.mark.skipif("LARGE_MODELS" not in os.environ, reason="minutes: set LARGE_MODELS=1")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("explorer", LARGE.values(), ids=LARGE.keys())
def test_every_state_of_more_waiters_is_safe_and_leads_to_the_end(explorer: Explorer) -> None:
    assert explorer.explore() > 70_000


@pytest.mark.parametrize("homes", [APART, TOGETHER, (0, 0, 1), (0, 1, 2)])
def test_nothing_is_left_when_no_lease_runs_out(homes: tuple[int, ...]) -> None:
    explorer = Explorer(homes, {"cut": 1, "timeout": 2}, has_time=False)

    assert explorer.explore() > 50


# Without one of its rules the protocol fails, and this model shows it


class Unsuspecting(Scripts):
    """A process that let a grant lapse is handed the lock again."""

    def suspect(self, client_state: Any, channel: str) -> None:
        pass


class Silent(Scripts):
    """Waiters of a suspect are taken from the queue and not told."""

    def again(self, channel: str, identifier: str) -> int:
        return 0


class Keeping(Scripts):
    """What was handed to a waiter that leaves is kept from the others."""

    def cancel(self, mark: Any, keys: Any, identifier: str, place: str) -> Any:
        self.redis.zrem(keys[1], place)
        return mark


class Freeless(Scripts):
    """A lock that nobody waits for is not freed."""

    def promote(self, key: Any, queue: Any, client_state: Any, *_: Any, **__: Any) -> None:
        place = self.redis.zpopmin(queue)
        if place is not None:
            channel, identifier, grant = place.split("|")
            self.redis.set(key, identifier, int(grant))
            self.redis.publish(channel, f"turn|{hint(identifier)}|")


def mutant(**changes: Any) -> Protocol:
    return replace(Protocol(), **changes)


MUTANTS = {
    "enters without evidence": (
        Explorer(APART, protocol=mutant(needs_evidence=False)),
        "two leases overlap|given away",
    ),
    "keeps its identifier at the next place": (
        Explorer(APART, protocol=replace(SHORT, has_own_places=False), stranger=1),
        "two leases overlap|given away",
    ),
    "believes a word without proof": (
        Explorer(APART, {"forgery": 1}, mutant(needs_proof=False)),
        "two leases overlap|given away",
    ),
    "believes a word that was said on another connection": (
        Explorer(APART, {"cut": 2, "replay": 1}, mutant(needs_connection=False)),
        "two leases overlap|given away",
    ),
    "takes the last word for evidence": (
        Explorer(APART, {"cut": 1, "replay": 1}, mutant(first_counts=False)),
        "two leases overlap|given away",
    ),
    "hands on what it holds": (
        Explorer(APART, {"forgery": 1}, mutant(keeps_what_it_entered=False)),
        "given away",
    ),
    "does not hand on what came too late": (
        Explorer(APART, {"timeout": 1}, mutant(cancels=False, hands_on=False), has_time=False),
        "forgotten",
    ),
    "cancel hands nothing on": (
        Explorer(APART, {"timeout": 1}, mutant(scripts=Keeping, hands_on=False), has_time=False),
        "forgotten",
    ),
    "no poke": (Explorer(APART, {"crash": 1}, mutant(pokes=False)), "forgotten"),
    "no again": (
        Explorer(TOGETHER, {}, replace(SHORT, scripts=Silent, tells_missing=False), stranger=1),
        "forgotten",
    ),
    "no suspect": (
        Explorer((0, 0, 1), {}, replace(SHORT, scripts=Unsuspecting), stranger=1),
        "handed the lock again",
    ),
    "does not free what nobody waits for": (
        Explorer(APART, {"timeout": 1}, mutant(scripts=Freeless), has_time=False),
        "forgotten",
    ),
}


@pytest.mark.parametrize(("explorer", "found"), MUTANTS.values(), ids=MUTANTS.keys())
def test_missing_rule_is_found(explorer: Explorer, found: str) -> None:
    with pytest.raises(Violation, match=found):
        explorer.explore()
