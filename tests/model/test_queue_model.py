"""In all states of a few waiters: at most one holds, none is forgotten, no key remains."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from model.explorer import Explorer, Protocol, Violation

from redis_lock_decorators.testing.fake.scripts import Scripts, hint

APART, TOGETHER = (0, 1), (0, 0)
#: The shortest leases: fewer states, so that more waiters are possible.
SHORT = Protocol(lease=1, grant=1)
#: If there are too many states, only this many of the nearest are visited.
MANY = 15_000
EVERY_FAULT = {"crash": 1, "cut": 1, "timeout": 1, "lost cancel": 1, "copy": 1}


class Slow(Scripts):
    """Skips at most one entry in a call."""

    most = most_unreached = 1


STEPWISE = replace(SHORT, scripts=Slow)
STATES = {
    "waiters of two processes": Explorer(APART, EVERY_FAULT),
    "waiters of one process": Explorer(TOGETHER, EVERY_FAULT),
    "with a hostile publisher, in one process": Explorer(
        TOGETHER, {"forgery": 2, "replay": 1, "timeout": 1}
    ),
    "two cuts": Explorer(APART, {"cut": 2, "copy": 1}),
    "behind an external holder": Explorer(TOGETHER, {}, external=1),
    "behind an external holder, a cut": Explorer(TOGETHER, {"cut": 1}, SHORT, external=1),
    "behind an external holder, a copy": Explorer(TOGETHER, {"copy": 1}, SHORT, external=1),
    "behind an external holder, a crash": Explorer(
        TOGETHER, {"crash": 1, "timeout": 1}, SHORT, external=1
    ),
    "holders that renew": Explorer(TOGETHER, {"cut": 1, "copy": 1}, renews=True),
    "one entry in a call": Explorer(APART, EVERY_FAULT, replace(Protocol(), scripts=Slow)),
    "two processes behind an external holder": Explorer(
        APART, {"cut": 1}, SHORT, external=1, most=MANY
    ),
    "three waiters": Explorer((0, 0, 1), EVERY_FAULT, SHORT, most=MANY),
    "three processes": Explorer((0, 1, 2), {"crash": 1}, SHORT, most=MANY),
}
#: Up to one and a half million states: minutes.
LARGE = {
    "one entry in a call, three processes": Explorer(
        (0, 1, 2), {"crash": 1, "lost cancel": 1}, STEPWISE, most=4 * MANY
    ),
    "one entry in a call, in one process": Explorer(
        TOGETHER, {"crash": 1, "cut": 1, "timeout": 1}, STEPWISE, external=1
    ),
    "with a hostile publisher": Explorer(APART, {"forgery": 1, "replay": 1, "cut": 1}),
    "two processes behind an external holder": Explorer(APART, {}, SHORT, external=1),
    "three waiters": Explorer((0, 0, 1), {}, SHORT),
    "three processes": Explorer((0, 1, 2), {}, SHORT),
}


@pytest.mark.parametrize("explorer", STATES.values(), ids=STATES.keys())
def test_every_state_is_safe_and_can_reach_the_end(explorer: Explorer) -> None:
    assert explorer.explore() > 1000


@pytest.mark.skipif("LARGE_MODELS" not in os.environ, reason="minutes: set LARGE_MODELS=1")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("explorer", LARGE.values(), ids=LARGE.keys())
def test_every_state_of_more_waiters_is_safe_and_can_reach_the_end(explorer: Explorer) -> None:
    assert explorer.explore() > 30_000


@pytest.mark.parametrize("homes", [APART, TOGETHER, (0, 0, 1), (0, 1, 2)])
def test_no_key_remains_when_no_lease_expires(homes: tuple[int, ...]) -> None:
    explorer = Explorer(homes, {"cut": 1, "timeout": 2}, has_time=False)

    assert explorer.explore() > 50


# Without one of its rules the protocol fails, which this model detects


class Unsuspecting(Scripts):
    """A process that let a grant expire is granted the lock again."""

    def suspect(self, waiters: Any, channel: str) -> None:
        pass


class Silent(Scripts):
    """Waiters of a suspect are removed from the queue without a message."""

    def again(self, channel: str, identifier: str) -> int:
        return 0


class Keeping(Scripts):
    """A lock that was granted to a waiter that leaves is not granted to others."""

    def cancel(self, mark: Any, keys: Any, identifier: str, entry: str) -> Any:
        self.redis.zrem(keys[1], entry)
        return mark


class NeverFreeing(Scripts):
    """A lock without waiters is not freed."""

    def grant_next(self, key: Any, queue: Any, waiters: Any, *_: Any, **__: Any) -> None:
        entry = self.redis.zpopmin(queue)
        if entry is not None:
            channel, identifier, grant = entry.split("|")
            self.redis.set(key, identifier, int(grant))
            self.redis.publish(channel, f"turn|{hint(identifier)}|")


def mutant(**changes: Any) -> Protocol:
    return replace(Protocol(), **changes)


MUTANTS = {
    "enters without evidence": (
        Explorer(APART, protocol=mutant(needs_evidence=False)),
        "two leases overlap|granted while",
    ),
    "keeps its identifier for the next entry": (
        Explorer(APART, protocol=replace(SHORT, has_own_entries=False), external=1),
        "two leases overlap|granted while",
    ),
    "accepts a message without proof": (
        Explorer(APART, {"forgery": 1}, mutant(needs_proof=False)),
        "two leases overlap|granted while",
    ),
    "accepts a message from another connection": (
        Explorer(APART, {"cut": 2, "replay": 1}, mutant(needs_connection=False)),
        "two leases overlap|granted while",
    ),
    "takes the last message as evidence": (
        Explorer(APART, {"cut": 1, "replay": 1}, mutant(first_counts=False)),
        "two leases overlap|granted while",
    ),
    "hands off what it holds": (
        Explorer(APART, {"forgery": 1}, mutant(keeps_what_it_entered=False)),
        "granted while",
    ),
    "does not hand off a late grant": (
        Explorer(APART, {"timeout": 1}, mutant(cancels=False, hands_off=False), has_time=False),
        "forgotten",
    ),
    "cancel hands off nothing": (
        Explorer(APART, {"timeout": 1}, mutant(scripts=Keeping, hands_off=False), has_time=False),
        "forgotten",
    ),
    "no recheck": (Explorer(APART, {"crash": 1}, mutant(rechecks=False)), "forgotten"),
    "no again": (
        Explorer(TOGETHER, {}, replace(SHORT, scripts=Silent, notifies_missing=False), external=1),
        "forgotten",
    ),
    "no suspect": (
        Explorer((0, 0, 1), {}, replace(SHORT, scripts=Unsuspecting), external=1),
        "granted the lock again",
    ),
    "does not free a lock without waiters": (
        Explorer(APART, {"timeout": 1}, mutant(scripts=NeverFreeing), has_time=False),
        "forgotten",
    ),
}


@pytest.mark.parametrize(("explorer", "found"), MUTANTS.values(), ids=MUTANTS.keys())
def test_missing_rule_is_found(explorer: Explorer, found: str) -> None:
    with pytest.raises(Violation, match=found):
        explorer.explore()
