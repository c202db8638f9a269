"""A lease that is released again, by a signal handler or task, while its release is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_wakeup import FakeWakeup
from support.interruptions import Interrupted, Interruption, interrupt_every_line
from support.simulation import SimulatedPort, acquired, new_claim

from redis_lock_decorators._flow.claim import FLOW, Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.hand_off_decision import HandOffDecision
from redis_lock_decorators._flow.queue.cohort import Cohort, complete_hand_offs, hand_off
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError

# A coroutine that is interrupted before its first step is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KEY = b"sys:lock:a"


def release_once(port: SimulatedPort, claim: Claim) -> None:
    run(release(port, claim, "script"))


def undo_once(port: SimulatedPort, claim: Claim) -> None:
    run(undo(port, claim))


class Handler(Interruption):
    """Calls a function at the n-th line, as a signal handler that returns."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        super().__init__(number)
        self._action = action

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        try:
            return super()._line(frame, event, argument)
        except Interrupted:
            self._action()
            return None


def handle_at_every_line(work: Callable[[Callable[[int, Any], Handler]], Handler]) -> int:
    """Run ``work(Handler)`` once for each line; the number of lines."""
    for number in range(2_000):
        if not work(lambda action, number=number: Handler(number, action)).happened:
            return number
    raise AssertionError("the work never ends")


def held_in_cohort(waiting: int = 1) -> tuple[SimulatedPort, Claim, list[CohortWaiter]]:
    """A claim that holds a lock, and the waiters of its cohort."""
    port, cohort = SimulatedPort(), Cohort()
    holder = acquired(port, "a")
    holder.cohort, holder.hand_off_decision = cohort, HandOffDecision()
    cohort.holder, cohort.since = holder, port.now()
    waiters = []
    for _ in range(waiting):
        claim = new_claim("a", owner=object())
        claim.cohort, claim.identifier, claim.hand_off_decision = cohort, "", HandOffDecision()
        waiter = claim.cohort_waiter = CohortWaiter(claim, FakeWakeup())  # type: ignore[arg-type]
        cohort.add(waiter)
        waiters.append(waiter)
    return port, holder, waiters


def has_one_holder(port: SimulatedPort, identifier: str, waiters: list[CohortWaiter]) -> None:
    for waiter in waiters:
        complete_hand_offs(waiter.claim)
    given = [waiter for waiter in waiters if waiter.claim.identifier == identifier]
    assert len(given) < 2, "two waiters hold the lock"
    held = port.server.value(KEY) is not None
    assert held is bool(given), "a waiter holds a lock that was released, or none holds it"


@pytest.mark.parametrize("waiting", [1, 2])
def test_handler_that_releases_during_a_hand_off_releases_nothing(waiting: int) -> None:
    def work(handler: Callable[[Any], Handler]) -> Handler:
        port, holder, waiters = held_in_cohort(waiting)
        identifier = holder.identifier
        with handler(lambda: run(release(port, holder, "script"))) as handled:
            run(release(port, holder, "script"))
        has_one_holder(port, identifier, waiters)
        return handled

    assert handle_at_every_line(work) > 30


def test_undo_during_a_hand_off_releases_nothing() -> None:
    def work(handler: Callable[[Any], Handler]) -> Handler:
        port, holder, waiters = held_in_cohort()
        identifier = holder.identifier
        with handler(lambda: run(undo(port, holder))) as handled:
            run(release(port, holder, "script"))
        has_one_holder(port, identifier, waiters)
        return handled

    assert handle_at_every_line(work) > 30


def test_waiter_remains_in_its_cohort_if_its_hand_off_is_interrupted() -> None:
    def work(interruption: Interruption) -> None:
        port, holder, (waiter,) = held_in_cohort()
        assert holder.cohort is not None
        try:
            with interruption:
                hand_off(port, holder)
        finally:
            waits = not holder.cohort.is_idle()  # type: ignore[attr-defined]
            assert waits or waiter.handed_lock is not None

    assert interrupt_every_line(work) > 20


def test_loss_is_reported_by_the_release_that_a_handler_interrupts() -> None:
    def work(handler: Callable[[Any], Handler]) -> Handler:
        port, losses = SimulatedPort(), []
        claim = acquired(port, "a")
        port.server.drop(KEY)

        def release_lost() -> None:
            try:
                run(release(port, claim, "script"))
            except LockLostError as error:
                losses.append(error)

        with handler(release_lost) as handled:
            release_lost()
        assert len(losses) == 1, handled.location
        assert claim.lost_reason is not None
        return handled

    assert handle_at_every_line(work) > 50


@pytest.mark.parametrize("second", [release_once, undo_once])
def test_second_release_during_a_release_is_no_loss(second: Callable[[Any, Claim], object]) -> None:
    def work(handler: Callable[[Any], Handler]) -> Handler:
        port = SimulatedPort()
        claim = acquired(port, "a")
        with handler(lambda: second(port, claim)) as handled:
            run(release(port, claim, "script"))
        assert claim.lost_reason is None
        assert claim.state is ENDED
        assert not claim.release_flow
        assert port.server.value(KEY) is None
        return handled

    assert handle_at_every_line(work) > 50


def test_interrupted_release_leaves_no_trace_of_being_under_way() -> None:
    def work(interruption: Interruption) -> None:
        port = SimulatedPort()
        claim = acquired(port, "a")
        try:
            with interruption:
                run(release(port, claim, "script"))
        finally:
            assert not claim.release_flow, interruption.location

    assert interrupt_every_line(work) > 50


def test_release_waits_for_another_one_and_repeats_it_if_that_failed() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    claim.release_flow[FLOW] = object()
    port.clock.at(port.now() + 1, claim.release_flow.clear)

    run(release(port, claim, "script"))

    assert sum(port.pauses) == pytest.approx(1, abs=0.06)
    assert port.server.value(KEY) is None


def test_release_does_not_wait_indefinitely_for_another_one() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=1000)
    claim.release_flow[FLOW] = object()

    run(release(port, claim, "script"))

    assert sum(port.pauses) == pytest.approx(30, abs=0.2)
    assert claim.state is ENDED
