"""A lease that is released again, by a signal handler or task, while its release is under way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.fake_wakeup import FakeWakeup
from support.interruptions import Interrupted, Interruption, interrupt_every_line
from support.simulation import SimulatedPort, acquired, new_claim

from redis_lock_decorators._flow.acquire import undo
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.disposal import Disposal
from redis_lock_decorators._flow.queue.cohort import Cohort, hand_off, settle
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError

KEY = b"sys:lock:a"


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
    holder.cohort, holder.disposal = cohort, Disposal()
    cohort.holder, cohort.since = holder, port.now()
    waiters = []
    for _ in range(waiting):
        claim = new_claim("a", owner=object())
        claim.cohort, claim.identifier, claim.disposal = cohort, "", Disposal()
        waiter = claim.cohort_waiter = CohortWaiter(claim, FakeWakeup())  # type: ignore[arg-type]
        cohort.add(waiter)
        waiters.append(waiter)
    return port, holder, waiters


def has_one_holder(port: SimulatedPort, identifier: str, waiters: list[CohortWaiter]) -> None:
    for waiter in waiters:
        settle(waiter.claim)
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
        with handler(lambda: run(undo(port, holder))) as handled, suppress(LockLostError):
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
            assert waits or waiter.handover is not None

    assert interrupt_every_line(work) > 20
