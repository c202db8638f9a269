"""Cohorts whose waiters time out, withdraw, or are interrupted at any line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from support.cohort_world import KEY, KEYS, SOON, World, held_with, stranded
from support.simulated_queue import Acquisition, QueuePort
from support.simulation import new_claim

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.cohort import (
    Cohort,
    complete_hand_offs,
    hand_off,
)
from redis_lock_decorators._flow.queue.cohort_wait import RECHECK
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.undo import undo


@pytest.fixture
def world() -> World:
    return World()


def test_second_waiter_leads_after_the_leader_times_out(world: World) -> None:
    holder = world.acquire(world.process(), strategy="queue")
    process = world.process()
    leader = world.acquire(process, wait=0.4)
    second, third = world.crowd(process, 2)

    world.advance(0.42 - SOON)
    entries = world.server.members(KEYS[1])
    holder.release()
    world.advance(SOON)

    assert leader.refusal is not None
    assert len(entries) == 1
    assert second.claim.identifier in next(iter(entries))
    assert world.serve_all() == [second, third]
    assert world.is_empty()


def test_waiter_that_timed_out_is_skipped(world: World) -> None:
    process = world.process()
    holder = world.acquire(process)
    impatient = world.acquire(process, wait=0.4)
    patient = world.acquire(process)

    world.advance(0.5)

    assert impatient.at == pytest.approx(0.4, abs=0.01)
    assert impatient.claim.state is ENDED
    assert world.serve_all() == [holder, patient]
    assert world.is_empty()


@pytest.mark.parametrize("offset", [-0.001, -1e-6, 0.0, 1e-6, 0.001])
def test_lock_handed_off_at_a_timeout_is_held_or_handed_off_again(
    world: World, offset: float
) -> None:
    process = world.process()
    holder = world.acquire(process)
    impatient = world.acquire(process, wait=0.5)
    patient = world.acquire(process)
    stop = 1000.001 + 0.5

    world.clock.at(stop + offset, holder.release)
    world.advance(1)

    assert world.inside() is not None
    order = world.serve_all()
    assert order[-1] is patient
    assert (impatient in order) is (impatient.refusal is None)
    assert world.is_empty()


class Cut(Acquisition):
    """An acquisition that is interrupted when it is resumed for the ``number``-th time."""

    number = 0

    async def _acquire(self) -> None:
        await Interrupting(super()._acquire(), self)


class Interrupting:
    def __init__(self, work: Any, attempt: Cut) -> None:
        self._work, self._taking = work, attempt

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._work.__await__()
        try:
            arrange = next(steps)
            while True:
                yield arrange
                self._taking.number -= 1
                cut = self._taking.number == -1
                arrange = steps.throw(KeyboardInterrupt()) if cut else next(steps)
        except StopIteration:
            return


def cut_at(number: int) -> Any:
    return type("CutHere", (Cut,), {"number": number})


def all_but(one: Acquisition, attempts: list[Acquisition]) -> list[Acquisition]:
    """The waiters that must enter: ``one`` only if it was not interrupted."""
    return [attempt for attempt in attempts if attempt is not one or attempt.error is None]


def test_leader_interrupted_at_any_step_delays_no_waiter() -> None:
    for number in range(100):
        world = World()
        holder = world.acquire(world.process(), strategy="queue")
        process = world.process()
        leader: Any = world.acquire(process, kind=cut_at(number))
        others = world.crowd(process, 2)

        world.advance(0.3)
        holder.release()
        world.advance(RECHECK + SOON)
        order = world.serve_all()

        assert order == all_but(leader, [leader, *others]), number
        assert world.is_empty(), number
        if leader.error is None:
            break

    assert 3 < number < 99


def test_waiter_interrupted_at_any_step_delays_no_waiter() -> None:
    for number in range(100):
        world = World()
        process = world.process()
        holder = world.acquire(process)
        next_member: Any = world.acquire(process, kind=cut_at(number))
        others = world.crowd(process, 2)

        world.advance(0.6)
        holder.release()
        world.advance(RECHECK + SOON)
        order = world.serve_all()

        assert order == all_but(next_member, [next_member, *others]), number
        assert world.is_empty(), number
        if next_member.error is None:
            break

    assert 2 < number < 99


def test_loss_is_told_though_the_last_member_is_interrupted_at_any_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The holder has handed its lock off, so it is not told: the last one learns of the loss."""
    for number in range(100):
        world = World()
        process = world.process()
        holder = world.acquire(process)
        last: Any = world.acquire(process, kind=cut_at(number))
        world.advance(0.6)
        world.server.drop(KEY)
        caplog.clear()

        holder.release()
        world.advance(RECHECK + SOON)
        if last.held:
            last.release()
            world.advance(SOON)

        told = [*process.lease_loop.failures, *caplog.messages]
        assert any("ended before the work did" in str(found) for found in told), number
        if last.error is None:
            break

    assert 2 < number < 99


class InterruptedExit(Cohort):
    """A cohort that interrupts one waiter while it leaves."""

    step = "withdraw"
    one: Claim | None = None

    def withdraw(self, waiter: CohortWaiter) -> bool:
        self._interrupt("withdraw", waiter)
        return super().withdraw(waiter)

    def stop_leading(self, waiter: CohortWaiter, now: float) -> None:
        self._interrupt("stop_leading", waiter)
        super().stop_leading(waiter, now)

    def _interrupt(self, step: str, waiter: CohortWaiter) -> None:
        if step == self.step and waiter.claim is self.one and waiter.claim.state is not ENDED:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["withdraw", "stop_leading"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_waiter_interrupted_while_leaving_blocks_no_waiter(
    world: World, step: str, place: int
) -> None:
    holder = world.acquire(world.process(), strategy="queue")
    process = world.process()
    cohort = process.cohorts[KEY, 10_000] = InterruptedExit()
    waiters = [world.acquire(process) for _ in range(4)]
    cohort.one, cohort.step = waiters[place].claim, step
    world.advance(SOON)

    process.waiters[1 + place].interrupt(KeyboardInterrupt())  # the first has two wake-up objects
    world.advance(SOON)
    holder.release()
    world.advance(RECHECK + SOON)
    order = world.serve_all()

    assert isinstance(waiters[place].error, KeyboardInterrupt)
    assert order == all_but(waiters[place], waiters)
    assert world.is_empty()


def test_release_interrupted_after_a_hand_off_is_idempotent(
    world: World,
) -> None:
    holder, (next_member, other) = held_with(world)

    def interrupt(signal: Signal) -> None:
        raise KeyboardInterrupt

    holder.process.waiters[1].notify = interrupt  # type: ignore[method-assign]
    for _ in range(2):
        holder.release()
        world.advance(RECHECK + SOON)

    assert [type(error) for error in holder.process.lease_loop.failures] == [KeyboardInterrupt]
    assert holder.claim.state is ENDED
    assert world.inside() is next_member
    assert not other.held
    assert world.serve_all() == [next_member, other]


def test_next_member_that_wakes_after_its_lease_waits_again(world: World) -> None:
    holder, (next_member, _) = held_with(world)
    other = world.acquire(world.process(), expire=60, grant=60, strategy="queue")
    world.advance(SOON)

    holder.release()
    world.clock.at(world.clock.now, lambda: holder.process.lease_loop.freeze(20))
    world.advance(15)
    first = world.inside()
    world.advance(10)

    assert first is other
    assert world.inside() is other
    assert next_member in world.serve_all()
    assert world.is_empty()


@pytest.mark.parametrize("is_lost", [False, True])
def test_late_member_releases_what_it_was_handed_or_warns_of_a_loss(
    world: World, caplog: pytest.LogCaptureFixture, is_lost: bool
) -> None:
    holder, (late, _) = held_with(world)
    world.advance(SOON)
    if is_lost:
        world.server.drop(KEY)
    else:  # by an extension whose reply was lost
        world.server.put(KEY, holder.claim.identifier, 60)

    holder.release()
    world.clock.at(world.clock.now, lambda: holder.process.lease_loop.freeze(20))
    world.advance(25)

    assert ("whether it was lost while the code before held it" in caplog.text) is is_lost
    assert late in world.serve_all()
    assert world.is_empty()


def test_late_message_does_not_release_a_lock_that_was_handed_off(world: World) -> None:
    holder, (late, next_member) = stranded(world)
    other = world.acquire(world.process(), strategy="queue")
    world.advance(SOON)
    late.process.subscriptions[-1].late = 0.5
    holder.release()
    world.advance(0.01)
    for waiter in late.process.waiters:
        waiter.notify(Signal.RETRY)  # as a recheck does that finds the entry missing
    world.advance(0.05)
    late.release()
    world.advance(0.01)
    entered = world.inside()

    world.advance(2)

    assert entered is next_member
    assert world.inside() is next_member
    assert world.server.value(KEY) == next_member.claim.identifier
    assert world.serve_all() == [next_member, other]


class Racing(Cohort):
    """A cohort where something happens between the choice of the next member and its hand-off."""

    happens: Any = staticmethod(lambda next_member: None)

    def first(self, now: float) -> CohortWaiter | None:
        next_member = super().first(now)
        if next_member is not None:
            self.happens(next_member)
        return next_member


def racing(world: World) -> tuple[Any, Claim, Racing, list[CohortWaiter]]:
    """A port, a claim that holds the lock, its cohort, and two waiters."""
    holder = world.acquire(world.process())
    world.advance(SOON)
    port: Any = QueuePort(holder.process)
    cohort = holder.claim.cohort = Racing()
    cohort.holder, cohort.since = holder.claim, holder.claim.since
    waiting = [CohortWaiter(new_claim("a", owner=object()), port.wakeup()) for _ in range(2)]
    for waiter in waiting:
        waiter.claim.cohort, waiter.claim.cohort_waiter = cohort, waiter
        cohort.add(waiter)
    return port, holder.claim, cohort, waiting


def test_lock_is_not_handed_to_a_thread_that_withdraws(world: World) -> None:
    port, holder, cohort, (gone, second) = racing(world)
    identifier, left = holder.identifier, []
    cohort.happens = lambda next_member: (
        left.append(cohort.withdraw(next_member)) if next_member is gone else None
    )

    is_handed_off = hand_off(port, holder)
    complete_hand_offs(second.claim)

    assert is_handed_off
    assert left == [True]
    assert gone.claim.identifier != identifier
    assert second.claim.identifier == identifier


def test_loss_is_told_to_a_member_that_is_interrupted_after_its_hand_off(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    port, holder, _, (interrupted, _) = racing(world)
    world.server.drop(KEY)
    assert hand_off(port, holder)

    port.process.lease_loop.start(undo(port, interrupted.claim, KeyboardInterrupt()))
    world.advance(SOON)

    assert "the lease of lock 'a' ended before the work did" in caplog.text
    assert interrupted.claim.state is ENDED


def test_thread_that_joins_during_its_hand_off_leaves_no_entry(world: World) -> None:
    port, holder, cohort, (next_member, second) = racing(world)
    cohort.happens = cohort.add

    is_handed_off = hand_off(port, holder)
    cohort.happens = lambda next_member: None
    left = cohort.withdraw(next_member)

    assert is_handed_off
    assert next_member.handed_lock is not None
    assert not left
    assert cohort.first(port.now()) is second
    cohort.withdraw(second)
    assert cohort.is_idle()


def at_line(number: int, action: Callable[[], object]) -> Callable[..., Any]:
    """A trace function that acts before the n-th line of cohorts, as another thread could."""
    left = iter(range(number, -1, -1))

    def trace(frame: Any, event: str, argument: object) -> Any:
        if frame.f_globals["__name__"] != hand_off.__module__:
            return None
        if event == "line" and next(left, None) == 0:
            sys.settrace(None)
            action()
        return trace

    return trace


def test_waiter_that_withdraws_during_a_hand_off_holds_or_is_skipped() -> None:
    outcomes = set()
    for number in range(60):
        world = World()
        port, holder, cohort, (first, second) = racing(world)
        identifier, left = holder.identifier, []

        def leave(cohort: Cohort = cohort, first: CohortWaiter = first, left: Any = left) -> None:
            left.append(cohort.withdraw(first))

        before = sys.gettrace()
        sys.settrace(at_line(number, leave))
        try:
            assert hand_off(port, holder)
        finally:
            sys.settrace(before)
        for waiter in (first, second):
            complete_hand_offs(waiter.claim)
        holders = [
            claim for claim in (holder, first.claim, second.claim) if claim.identifier == identifier
        ]

        assert holders == [second.claim if left == [True] else first.claim], number
        outcomes.add(tuple(left))

    assert outcomes == {(True,), (False,), ()}


def test_hand_off_interrupted_at_any_line_leaves_one_holder() -> None:
    for number in range(60):
        world = World()
        port, holder, _, waiting = racing(world)
        identifier = holder.identifier

        def fail() -> None:
            raise KeyboardInterrupt

        before = sys.gettrace()
        sys.settrace(at_line(number, fail))
        try:
            hand_off(port, holder)
        except KeyboardInterrupt:
            sys.settrace(None)
            is_handed_off = hand_off(port, holder)  # as leaving the block does next
            assert is_handed_off
        finally:
            sys.settrace(before)
        for waiter in waiting:
            complete_hand_offs(waiter.claim)

        assert [waiter.claim.identifier for waiter in waiting].count(identifier) == 1, number
        assert holder.identifier == "", number
