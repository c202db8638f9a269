"""Cohorts and the signals to their waiters, with thread switches at any line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_wakeup import FakeWakeup
from support.simulation import SimulatedPort, acquired, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.hand_off_decision import HandOffDecision
from redis_lock_decorators._flow.queue.cohort import (
    Cohort,
    complete_hand_offs,
    hand_off,
    is_handed_off,
)
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.background.wakeups import ThreadWakeup
from redis_lock_decorators._io.blocking_port import run

COHORT = Scenes("_flow/queue/cohort", "_flow/queue/cohort_waiter", "_flow/hand_off_decision")
WAITER = Scenes("_io/background/wakeups")


# Cohorts


def new_waiter(name: str = "a") -> CohortWaiter:
    claim = new_claim(name)
    claim.cohort_waiter = CohortWaiter(claim, FakeWakeup())  # type: ignore[arg-type]
    return claim.cohort_waiter


def held_in_cohort(*, waiting: int = 1) -> tuple[SimulatedPort, Cohort, Claim, list[CohortWaiter]]:
    port, cohort = SimulatedPort(), Cohort()
    holder = acquired(port, "a")
    holder.cohort, cohort.holder, cohort.since = cohort, holder, port.now()
    holder.hand_off_decision = HandOffDecision()
    waiters = [new_waiter() for _ in range(waiting)]
    for one in waiters:
        cohort.add(one)
    return port, cohort, holder, waiters


def is_held_by(next_member: CohortWaiter, identifier: str) -> bool:
    """Whether a waiter holds the lock once it has settled."""
    complete_hand_offs(next_member.claim)
    return next_member.claim.identifier == identifier


@COHORT.add
def only_member_withdraws_during_a_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member,) = held_in_cohort()
    identifier, found = holder.identifier, {}

    def check() -> None:
        assert found["handed"] is not found["gone"], "handed to no waiting member"
        assert found["handed"] is is_held_by(next_member, identifier) is not bool(holder.identifier)

    return Scene(
        lambda: found.update(handed=hand_off(port, holder)),
        lambda: found.update(gone=cohort.withdraw(next_member)),
        check,
    )


@COHORT.add
def first_member_withdraws_during_a_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member, second) = held_in_cohort(waiting=2)
    identifier, found = holder.identifier, {}

    def check() -> None:
        assert found["handed"]
        assert is_held_by(next_member, identifier) is not found["gone"]
        assert is_held_by(second, identifier) is found["gone"]
        assert cohort.holder is (second if found["gone"] else next_member).claim

    return Scene(
        lambda: found.update(handed=hand_off(port, holder)),
        lambda: found.update(gone=cohort.withdraw(next_member)),
        check,
    )


@COHORT.add
def next_member_settles_during_the_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member,) = held_in_cohort()
    identifier = holder.identifier

    def leave() -> None:
        """What a waiter does at the end of its wait."""
        cohort.withdraw(next_member)
        complete_hand_offs(next_member.claim)
        cohort.stop_leading(next_member, port.now())

    def check() -> None:
        holders = [claim for claim in (holder, next_member.claim) if claim.identifier == identifier]
        assert len(holders) == 1, "held by both or by none"
        assert holders[0].is_live(port.now())

    return Scene(lambda: hand_off(port, holder), leave, check)


@COHORT.add
def claim_is_released_during_its_hand_off(switcher: Switcher) -> Scene:
    port, _, holder, (next_member,) = held_in_cohort()
    return both_dispose(
        (holder, [next_member]),
        lambda: hand_off(port, holder) or is_handed_off(holder),
        lambda: is_handed_off(holder),
    )


@COHORT.add
def two_threads_hand_one_claim_off(switcher: Switcher) -> Scene:
    port, _, holder, waiters = held_in_cohort(waiting=2)

    def release() -> bool:
        return hand_off(port, holder) or is_handed_off(holder)

    return both_dispose((holder, waiters), release, release)


@COHORT.add
def interrupted_exit_undoes_a_claim_during_its_hand_off(switcher: Switcher) -> Scene:
    port, _, holder, waiters = held_in_cohort(waiting=2)

    def undo() -> bool:
        complete_hand_offs(holder)
        return is_handed_off(holder)

    return both_dispose(
        (holder, waiters), lambda: hand_off(port, holder) or is_handed_off(holder), undo
    )


def both_dispose(
    of: tuple[Claim, list[CohortWaiter]], one: Callable[[], bool], other: Callable[[], bool]
) -> Scene:
    """Two operations, each of which returns whether a claim's lock is handed off."""
    holder, waiters = of
    identifier, found = holder.identifier, []

    def check() -> None:
        given = [waiter for waiter in waiters if is_held_by(waiter, identifier)]
        assert found == [bool(given)] * 2, "one handed the lock off, the other releases it"
        assert len(given) < 2
        assert holder.identifier == ("" if given else identifier)

    return Scene(lambda: found.append(one()), lambda: found.append(other()), check)


@COHORT.add
def two_waiters_want_to_lead(switcher: Switcher) -> Scene:
    cohort, one, other, led = Cohort(), new_waiter(), new_waiter(), []

    def lead(waiter: CohortWaiter) -> None:
        cohort.add(waiter)
        if cohort.lead(waiter, 1000.0):
            led.append(waiter)

    def check() -> None:
        assert len(led) == 1

    return Scene(lambda: lead(one), lambda: lead(other), check)


@COHORT.add
def waiter_joins_while_the_leader_steps_down(switcher: Switcher) -> Scene:
    cohort, leader, waiter, led = Cohort(), new_waiter(), new_waiter(), []
    cohort.add(leader)
    assert cohort.lead(leader, 1000.0)

    def stop_leading() -> None:
        cohort.withdraw(leader)
        cohort.stop_leading(leader, 1000.0)

    def join() -> None:
        cohort.add(waiter)
        led.append(cohort.lead(waiter, 1000.0))

    def check() -> None:
        assert led == [True] or waiter.wakeup.signal, "there is no leader"  # type: ignore[attr-defined]

    return Scene(stop_leading, join, check)


@COHORT.add
def two_waiters_leave(switcher: Switcher) -> Scene:
    _, cohort, _, (one, other) = held_in_cohort(waiting=2)
    return Scene(lambda: cohort.withdraw(one), lambda: cohort.withdraw(other), lambda: idle(cohort))


def idle(cohort: Cohort) -> None:
    assert cohort.is_idle()


# A thread that waits for signals


def waiter_of(switcher: Switcher) -> ThreadWakeup:
    waiter = ThreadWakeup(lambda: None)
    waiter._gate._lock = switcher.lock(taken=True)  # type: ignore[assignment]
    return waiter


@WAITER.add
def signal_arrives_while_a_thread_begins_to_wait(switcher: Switcher) -> Scene:
    waiter, received = waiter_of(switcher), []
    return Scene(
        lambda: received.append(run(waiter.wait(1e6))),  # type: ignore[arg-type]
        lambda: waiter.notify(Signal.GRANTED),
        lambda: are_received(received, Signal.GRANTED),
    )


@WAITER.add
def two_signals_arrive(switcher: Switcher) -> Scene:
    waiter, received = waiter_of(switcher), []

    def wait() -> None:
        received.extend([run(waiter.wait(1e6)), run(waiter.wait(1e6))])  # type: ignore[arg-type]

    def notify() -> None:
        waiter.notify(Signal.RETRY)
        waiter.notify(Signal.GRANTED)

    return Scene(wait, notify, lambda: are_received(received, Signal.RETRY, Signal.GRANTED))


@WAITER.add
def two_threads_notify(switcher: Switcher) -> Scene:
    waiter = waiter_of(switcher)

    def check() -> None:
        assert {run(waiter.wait(0)), run(waiter.wait(0))} == {Signal.RETRY, Signal.GRANTED}  # type: ignore[arg-type]

    return Scene(lambda: waiter.notify(Signal.RETRY), lambda: waiter.notify(Signal.GRANTED), check)


def are_received(received: list[Any], *signal: Signal) -> None:
    assert received == [*signal]


ALL = [(scenes, scene) for scenes in (COHORT, WAITER) for scene in scenes]


@pytest.mark.parametrize(("scenes", "scene"), ALL, ids=[name_of(scene) for _, scene in ALL])
def test_cohorts_are_consistent_with_thread_switches_at_any_line(
    scenes: Scenes, scene: Make
) -> None:
    assert scenes.explore(scene) > 5
