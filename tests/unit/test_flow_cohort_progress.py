"""Cohort waiters that make no progress, many waiters, and the requests that they send."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from support.cohort_world import KEY, KEYS, PATIENCE, SOON, World, held_with, stranded
from support.faults import raising
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.cohort import (
    MOST_HAND_OFFS,
    Cohort,
)
from redis_lock_decorators._flow.queue.cohort_wait import RECHECK
from redis_lock_decorators._flow.queue.cohort_waiter import WAITER_SILENCE, CohortWaiter
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run


@pytest.fixture
def world() -> World:
    return World()


class Suspended:
    """A waiter whose thread runs other code between ``suspend`` and ``resume``."""

    def __init__(self, world: World, process: SimulatedProcess, **options: Any) -> None:
        self.attempt = Acquisition(process, "a", PATIENCE, strategy="cohort", **options)
        self._work = process.lease_loop.works[-1]
        world.advance(SOON)

    def suspend(self) -> None:
        self._work._is_over = True

    def resume(self) -> None:
        self._work._is_over = False
        self._work.step()


def of_owner(
    world: World, process: SimulatedProcess, owner: object, wait: float = PATIENCE
) -> Acquisition:
    """A waiter of the given owner, for instance on the thread of another waiter."""
    attempt = Acquisition(process, "a", wait, strategy="cohort")
    attempt.claim.owner = owner
    world.advance(SOON)
    return attempt


@pytest.mark.parametrize("leads", [True, False])
def test_signal_handler_does_not_wait_for_the_waiter_it_interrupts(
    world: World, leads: bool
) -> None:
    holder, process = world.acquire(world.process()), world.process()
    if not leads:
        other = world.acquire(process)
    suspended = Suspended(world, process)
    suspended.suspend()
    handler = of_owner(world, process, suspended.attempt.claim.owner)
    later = world.acquire(process)
    world.advance(1)

    holder.release()
    world.advance(2 * 2.5 + 1)
    if not leads:
        assert other.held
        other.release()
        world.advance(0.5)

    assert handler.held
    handler.release()
    world.advance(0.5)
    assert later.held
    later.release()
    suspended.resume()
    world.advance(1)
    assert suspended.attempt.held
    suspended.attempt.release()
    world.advance(1)
    assert world.is_empty()


@pytest.mark.parametrize("leads", [True, False])
def test_waiter_without_progress_is_skipped(world: World, leads: bool) -> None:
    holder, process = world.acquire(world.process()), world.process()
    leader = world.acquire(process, wait=1) if not leads else None
    suspended = Suspended(world, process)
    others = world.crowd(process, 2)
    suspended.suspend()
    world.advance(2)
    assert leader is None or leader.at is not None

    holder.release()
    world.advance(WAITER_SILENCE + 2 * 2.5)
    first = others[0].held
    others[0].release()
    world.advance(0.5)

    assert first
    assert others[1].held
    others[1].release()
    world.advance(0.5)
    suspended.resume()
    world.advance(2)
    assert suspended.attempt.held
    suspended.attempt.release()
    world.advance(1)
    assert world.is_empty()


def test_leader_that_waits_long_remains_the_only_one(world: World) -> None:
    holder, process = world.acquire(world.process()), world.process()
    crowd = world.crowd(process, 5)
    process.port.log.clear()

    for _ in range(50):
        world.advance(1)
        holder.claim.prolong(world.clock.now, 10)
        world.server.put(KEY, holder.claim.identifier, 10)
        assert len(world.server.members(KEYS[1])) == 1

    assert "enqueue" not in process.port.verbs
    assert "acquire" not in process.port.verbs
    assert not any(attempt.held for attempt in crowd)


def test_next_member_interrupted_twice_can_be_undone_again(world: World) -> None:
    holder, (next_member,) = held_with(world, 1)
    holder.release()
    world.advance(SOON)
    assert next_member.held
    port: Any = next_member.process.port
    port.faults = [raising(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        run(undo(port, next_member.claim))
    if next_member.claim.state is not ENDED:
        run(undo(port, next_member.claim))

    assert next_member.claim.state is ENDED
    assert world.server.value(KEY) is None


class Compared(CohortWaiter):
    """Counts how often waiters are compared with each other."""

    count = 0
    __hash__ = CohortWaiter.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return self is other


def test_joining_and_leaving_compares_no_waiters() -> None:
    cohort, waiter = Cohort(), SimulatedProcess(SimulatedServer(Clock())).lease_loop
    crowd = [Compared(new_claim("a"), waiter) for _ in range(50)]  # type: ignore[arg-type]
    for _ in range(2):
        for waiter in crowd:
            cohort.add(waiter)
    first = cohort.first(0)
    for waiter in crowd:
        cohort.withdraw(waiter)

    assert first is crowd[0]
    assert cohort.is_idle()
    assert Compared.count == 0


def test_only_the_first_of_many_waiters_recheck_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranded(world, 50)
    rechecks, lead = [], Cohort.lead
    monkeypatch.setattr(Cohort, "lead", lambda *args: rechecks.append(1) or lead(*args))

    world.advance(8)

    assert len(rechecks) < 500, "all waiters rechecked every quarter of a second"


def test_next_member_needs_no_separate_identifier(world: World) -> None:
    holder, next_member = world.crowd(world.process(), 2)
    given = holder.claim.identifier
    assert given
    assert not next_member.claim.identifier, "a system call for random bytes would switch threads"
    holder.release()
    world.advance(0)
    assert next_member.claim.identifier == given
    assert next_member.claim.releaser != given, (
        "its notes must be distinct from the former holder's"
    )


def test_waiter_that_times_out_without_a_request_sends_nothing(world: World) -> None:
    process = world.process()
    holder, waiting = world.crowd(process, 2, wait=1)
    process.port.log.clear()
    world.advance(2)
    assert waiting.claim.state is ENDED
    assert holder.is_live
    assert process.port.log == []


@pytest.mark.parametrize("hand_offs", [0, MOST_HAND_OFFS], ids=["handed off", "released in Redis"])
def test_silent_waiters_are_woken_by_a_release(
    world: World, hand_offs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their timers may be lost, so that they would sleep while the lock is free."""
    holder, waiters = held_with(world)
    holder.claim.hand_offs = hand_offs
    woken: list[int] = []
    for number, waiter in enumerate(waiters):
        waiter = waiter.claim.cohort_waiter
        assert waiter is not None
        waiter.acted = -math.inf
        monkeypatch.setattr(
            waiter, "wakeup", SimpleNamespace(notify=lambda _, number=number: woken.append(number))
        )

    holder.release()
    world.advance(0.01)

    assert set(woken) == {0, 1}


def test_waiter_competes_once_the_lease_of_the_holder_is_gone(world: World) -> None:
    """Nothing renews or checks such a lease, so a loss of the lock would not be noticed."""
    holder, (first, second) = held_with(world)
    holder.claim.lease_ref = lambda: None
    world.server.drop(KEY)
    world.advance(RECHECK + SOON)

    assert first.is_live
    assert not second.is_live


def test_waiters_of_a_lease_that_is_gone_wait_for_its_expiry(world: World) -> None:
    holder, (first, _) = held_with(world)
    holder.claim.lease_ref = lambda: None
    world.advance(5)

    assert not first.is_live
