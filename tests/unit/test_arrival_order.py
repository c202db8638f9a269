"""Waiters of one process enter in the order in which they began to wait."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError
from support.faults import raising
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.waiter import Signal

COUNT = 12


@pytest.fixture
def process() -> SimulatedProcess:
    return SimulatedProcess(SimulatedServer(Clock()))


def entered(process: SimulatedProcess, attempts: list[Acquisition], seconds: float) -> list[int]:
    """The order in which attempts acquire the lock; each releases it immediately."""
    order: list[int] = []
    for _ in range(round(seconds / 0.001)):
        process.server.clock.advance(0.001)
        for number, attempt in enumerate(attempts):
            if attempt.held and number not in order:
                order.append(number)
                attempt.release()
    return order


@pytest.mark.parametrize("latency", [0.001, 0.2])
def test_waiters_that_begin_together_enter_in_order(
    process: SimulatedProcess, latency: float
) -> None:
    """With any time until the subscription opens."""
    process.port.latency = latency

    attempts = [process.acquire("a") for _ in range(COUNT)]

    assert entered(process, attempts, 20) == list(range(COUNT))


def test_newcomer_does_not_overtake_a_waiter_that_is_not_queued_yet(
    process: SimulatedProcess,
) -> None:
    process.port.latency = 0.02
    attempts = [process.acquire("a") for _ in range(3)]
    process.server.clock.advance(0.03)
    attempts.append(process.acquire("a"))

    assert entered(process, attempts, 10) == [0, 1, 2, 3]


def test_single_attempt_never_joins_the_queue(process: SimulatedProcess) -> None:
    first = process.acquire("a")
    process.server.clock.advance(0.01)
    first.release()
    process.server.clock.advance(0.01)
    process.acquire("a")
    process.server.clock.advance(0.01)

    assert [sent.verb for sent in process.port.log] == ["acquire", "release", "acquire"]


class Subscribed:
    """A process with an open subscription, because one of its tasks waits for lock "b"."""

    def __init__(self, process: SimulatedProcess) -> None:
        self.process, self.clock = process, process.server.clock
        self.holder = SimulatedProcess(process.server, 1)
        self.lock("b")
        process.acquire("b")
        self.clock.advance(0.2)
        assert process.subscriber is not None
        assert process.subscriber.is_open
        process.port.log.clear()

    def lock(self, name: str) -> Acquisition:
        """Acquire a lock in another process."""
        attempt = self.holder.acquire(name, expire=100)
        self.clock.advance(0.01)
        assert attempt.held
        return attempt


@pytest.fixture
def subscribed(process: SimulatedProcess) -> Subscribed:
    return Subscribed(process)


@pytest.mark.parametrize("latency", [0.001, 0.2])
def test_burst_enters_in_order_if_all_can_queue_immediately(
    process: SimulatedProcess, subscribed: Subscribed, latency: float
) -> None:
    holder = subscribed.lock("a")
    process.port.latency = latency
    attempts = [process.acquire("a") for _ in range(COUNT)]
    subscribed.clock.advance(1)
    holder.release()

    assert entered(process, attempts, 20) == list(range(COUNT))


def test_single_attempt_with_a_subscription_sends_two_requests(
    process: SimulatedProcess, subscribed: Subscribed
) -> None:
    first = process.acquire("a")
    subscribed.clock.advance(0.01)
    assert first.held
    assert not first.claim.has_queued, (
        "its release would cost more than for a lock acquired immediately"
    )
    first.release()
    subscribed.clock.advance(0.01)

    assert [sent.verb for sent in process.port.log] == ["enqueue", "release"]


def test_fenced_lock_is_tried_before_joining_the_queue(
    process: SimulatedProcess, subscribed: Subscribed
) -> None:
    attempt = Acquisition(process, "a", 30)
    attempt.claim.fencing = True
    subscribed.clock.advance(0.01)

    assert attempt.held
    assert [sent.verb for sent in process.port.log] == ["acquire_fenced"]


def test_free_lock_whose_queue_is_forbidden_is_acquired_immediately(
    process: SimulatedProcess, subscribed: Subscribed
) -> None:
    process.port.faults = [raising(NoPermissionError("no right to the queue"))]
    attempt = process.acquire("a")
    subscribed.clock.advance(0.05)

    assert attempt.held


def test_next_waiter_rechecks_as_soon_as_the_first_has_released(process: SimulatedProcess) -> None:
    """Although no subscription is open that could notify it."""
    holder = SimulatedProcess(process.server, 1).acquire("a", expire=100)
    process.server.clock.advance(0.01)
    process.hangs_at = "connect"
    first, second, third = (process.acquire("a", wait=60) for _ in range(3))
    process.server.clock.advance(0.1)
    holder.release()
    process.server.clock.advance(0.4)
    assert first.held

    first.release()
    process.server.clock.advance(0.4)  # a recheck may take 375 ms

    assert (second.held, third.held) == (True, False)


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.002])
def test_waiter_whose_lease_expired_before_it_noticed_remains_first(
    process: SimulatedProcess, moment: float
) -> None:
    attempts = [process.acquire("a", wait=60, expire=1) for _ in range(COUNT)]
    process.server.clock.advance(moment)
    process.lease_loop.freeze(1.1)

    assert entered(process, attempts, 20) == list(range(COUNT))


@pytest.mark.parametrize("seconds", [2.0, 2.4, 2.6, 4.0])
def test_waiters_that_notice_their_grants_too_late_keep_their_order(
    process: SimulatedProcess, seconds: float
) -> None:
    holder = SimulatedProcess(process.server, 1).acquire("a", expire=60)
    process.server.clock.advance(0.01)
    attempts = []
    for _ in range(COUNT):
        attempts.append(process.acquire("a", wait=60, expire=60))
        process.server.clock.advance(0.1)

    process.lease_loop.freeze(seconds)
    holder.release()

    assert entered(process, attempts, 20) == list(range(COUNT))


class Wakeup:
    """Records the signals sent to a waiter."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def notify(self, signal: Signal) -> None:
        self.signals.append(signal)


def test_only_the_next_waiter_is_notified_that_it_is_first() -> None:
    arrivals, claims = ArrivalOrder(), [new_claim("a") for _ in range(4)]
    wakeups = [Wakeup() for _ in claims]
    for claim, waiter in zip(claims, wakeups, strict=True):
        arrivals.join(b"a", claim)
        arrivals.set_wakeup(b"a", claim, waiter)  # type: ignore[arg-type]
    claims[1].state = ENDED  # interrupted while it withdrew
    arrivals.set_wakeup(b"a", claims[3], None)

    arrivals.leave(b"a", claims[0])
    arrivals.leave(b"a", claims[2])

    assert [waiter.signals for waiter in wakeups] == [[], [], [Signal.FIRST], []]


def test_claim_interrupted_while_it_withdrew_precedes_no_waiter() -> None:
    arrivals, one, other = ArrivalOrder(), new_claim("a"), new_claim("a")
    assert arrivals.join(b"a", one)
    assert not arrivals.join(b"a", other)

    one.state = ENDED

    assert arrivals.is_first(b"a", other)


def test_nothing_is_kept_of_claims_that_withdrew() -> None:
    arrivals, claims = ArrivalOrder(), [new_claim("a") for _ in range(3)]
    for claim in claims:
        arrivals.join(b"a", claim)
    for claim in claims:
        arrivals.leave(b"a", claim)

    assert arrivals._claims == {}
