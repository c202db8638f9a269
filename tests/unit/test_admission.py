"""A subscription that opens admits its waiters in order without blocking the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from support.simulated_queue import SimulatedProcess
from support.simulation import Clock, SimulatedPort, SimulatedServer

from redis_lock_decorators._flow.queue import admission
from redis_lock_decorators._flow.queue.admission import Admission
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal

MOST = 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST", MOST)


class FakeLoop:
    """An event loop whose iterations are run one by one."""

    random = staticmethod(lambda: 0.5)
    now = staticmethod(lambda: 1000.0)

    def __init__(self) -> None:
        self.wanted: set[Any] = set()
        self.calls: deque[Callable[[], object]] = deque()

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append(function)

    def run_once(self) -> None:
        """Run one iteration: the calls that were scheduled before it."""
        for _ in range(len(self.calls)):
            self.calls.popleft()()


class Wakeup:
    """Records in which order waiters are notified."""

    def __init__(self, number: int, order: list[int]) -> None:
        self.number, self.order = number, order

    def notify(self, signal: Signal) -> None:
        assert signal is Signal.ADMITTED
        self.order.append(self.number)


def new_waiters(count: int, order: list[int], first: int = 0) -> list[QueuedWaiter]:
    numbers = range(first, first + count)
    return [QueuedWaiter(b"a", str(number), Wakeup(number, order)) for number in numbers]  # type: ignore[arg-type]


def test_few_waiters_are_admitted_in_each_event_loop_iteration() -> None:
    lease_loop, order = FakeLoop(), []  # type: ignore[var-annotated]
    admitted, waiters = Admission(lease_loop), new_waiters(3 * MOST, order)

    admitted.begin(lambda: waiters)
    admitted.step()
    counts = [len(order)]
    while lease_loop.calls:
        lease_loop.run_once()
        counts.append(len(order))

    assert counts == [MOST, 2 * MOST, 3 * MOST, 3 * MOST]
    assert order == sorted(order)
    assert not admitted


def test_newcomer_is_admitted_behind_the_notified_waiters() -> None:
    lease_loop, order = FakeLoop(), []  # type: ignore[var-annotated]
    admitted, waiters = Admission(lease_loop), new_waiters(MOST, order)
    admitted.begin(lambda: waiters)
    admitted.step()
    (newcomer,) = new_waiters(1, order, first=MOST)

    assert admitted, "the notified waiters have not run yet"
    admitted.add(newcomer)
    admitted.resume()

    assert newcomer.awaits_admission
    lease_loop.run_once()
    assert not newcomer.awaits_admission
    assert order == [0, 1, 2, 3]


def test_subscription_that_opens_again_admits_all_in_order_again() -> None:
    lease_loop, order = FakeLoop(), []  # type: ignore[var-annotated]
    admitted, waiters = Admission(lease_loop), new_waiters(2 * MOST, order)
    admitted.begin(lambda: waiters)
    admitted.step()

    order.clear()
    admitted.begin(lambda: waiters)
    admitted.step()
    lease_loop.run_once()

    assert order == list(range(2 * MOST))


def test_exception_from_outside_skips_no_waiter() -> None:
    lease_loop, order = FakeLoop(), []  # type: ignore[var-annotated]
    admitted, waiters = Admission(lease_loop), new_waiters(3, order)
    wakeup, waiters[1].wakeup = waiters[1].wakeup, None  # type: ignore[assignment]
    admitted.begin(lambda: waiters)
    with pytest.raises(AttributeError):
        admitted.step()
    waiters[1].awaits_admission, waiters[1].wakeup = True, wakeup

    admitted.resume()

    assert order == [0, 1, 2]


def test_waiters_that_join_during_the_opening_are_admitted_once() -> None:
    lease_loop, order = FakeLoop(), []  # type: ignore[var-annotated]
    subscriber = Subscriber(lease_loop, SimulatedPort(), "channel", b"a", lambda _: None)  # type: ignore[arg-type]
    subscriber._is_alive = True
    for waiter in new_waiters(50, order):
        subscriber.join(waiter)

    subscriber._admission.begin(subscriber._entries.waiters)
    subscriber.is_open = True
    subscriber._admission.step()
    while lease_loop.calls:
        lease_loop.run_once()

    assert order == list(range(50))


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.01])
def test_waiters_that_begin_during_the_opening_enter_in_order(moment: float) -> None:
    process = SimulatedProcess(SimulatedServer(Clock()))
    attempts = [process.acquire("a", wait=60) for _ in range(4 * MOST)]
    process.server.clock.advance(moment)
    attempts += [process.acquire("a", wait=60) for _ in range(2 * MOST)]
    order: list[int] = []
    for _ in range(1000):
        process.server.clock.advance(0.001)
        for number, attempt in enumerate(attempts):
            if attempt.held and number not in order:
                order.append(number)
                attempt.release()

    assert order == list(range(6 * MOST))
