"""Nobody who waits here is overtaken by who began later."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError
from support.faults import raising
from support.simulated_queue import Taking, Waiting
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.waiter import Signal

COUNT = 12


@pytest.fixture
def process() -> Waiting:
    return Waiting(SimulatedServer(Clock()))


def entered(process: Waiting, takings: list[Taking], seconds: float) -> list[int]:
    """Who entered, in this order, while each lets the lock go as soon as it has it."""
    order: list[int] = []
    for _ in range(round(seconds / 0.001)):
        process.server.clock.advance(0.001)
        for number, taking in enumerate(takings):
            if taking.held and number not in order:
                order.append(number)
                taking.ends()
    return order


@pytest.mark.parametrize("latency", [0.001, 0.2])
def test_who_begin_at_once_enter_in_their_order(process: Waiting, latency: float) -> None:
    """However long it takes until they can be told."""
    process.port.latency = latency

    takings = [process.takes("a") for _ in range(COUNT)]

    assert entered(process, takings, 20) == list(range(COUNT))


def test_newcomer_does_not_overtake_who_waits_to_line_up(process: Waiting) -> None:
    process.port.latency = 0.02
    takings = [process.takes("a") for _ in range(3)]
    process.server.clock.advance(0.03)
    takings.append(process.takes("a"))

    assert entered(process, takings, 10) == [0, 1, 2, 3]


def test_one_alone_lines_up_nowhere(process: Waiting) -> None:
    first = process.takes("a")
    process.server.clock.advance(0.01)
    first.ends()
    process.server.clock.advance(0.01)
    process.takes("a")
    process.server.clock.advance(0.01)

    assert [sent.verb for sent in process.port.log] == ["acquire", "release", "acquire"]


class Elsewhere:
    """A process that can be told of every lock, as one of its tasks waits for lock "b"."""

    def __init__(self, process: Waiting) -> None:
        self.process, self.clock = process, process.server.clock
        self.holder = Waiting(process.server, 1)
        self.lock("b")
        process.takes("b")
        self.clock.advance(0.2)
        assert process.subscriber is not None
        assert process.subscriber.is_open
        process.port.log.clear()

    def lock(self, name: str) -> Taking:
        """Have another process hold a lock."""
        taking = self.holder.takes(name, expire=100)
        self.clock.advance(0.01)
        assert taking.held
        return taking


@pytest.fixture
def elsewhere(process: Waiting) -> Elsewhere:
    return Elsewhere(process)


@pytest.mark.parametrize("latency", [0.001, 0.2])
def test_first_of_a_burst_is_first_where_all_can_line_up_at_once(
    process: Waiting, elsewhere: Elsewhere, latency: float
) -> None:
    holder = elsewhere.lock("a")
    process.port.latency = latency
    takings = [process.takes("a") for _ in range(COUNT)]
    elsewhere.clock.advance(1)
    holder.ends()

    assert entered(process, takings, 20) == list(range(COUNT))


def test_one_alone_makes_two_requests_where_it_could_line_up(
    process: Waiting, elsewhere: Elsewhere
) -> None:
    first = process.takes("a")
    elsewhere.clock.advance(0.01)
    assert first.held
    assert not first.claim.has_queued, "to let it go would cost more than of a lock taken at once"
    first.ends()
    elsewhere.clock.advance(0.01)

    assert [sent.verb for sent in process.port.log] == ["enqueue", "release"]


def test_numbered_lock_is_not_lined_up_for_before_it_is_tried(
    process: Waiting, elsewhere: Elsewhere
) -> None:
    taking = Taking(process, "a", 30)
    taking.claim.fencing = True
    elsewhere.clock.advance(0.01)

    assert taking.held
    assert [sent.verb for sent in process.port.log] == ["acquire_fenced"]


def test_free_lock_whose_queue_may_not_be_used_is_taken_without_a_pause(
    process: Waiting, elsewhere: Elsewhere
) -> None:
    process.port.faults = [raising(NoPermissionError("no right to the queue"))]
    taking = process.takes("a")
    elsewhere.clock.advance(0.05)

    assert taking.held


def test_next_one_looks_as_soon_as_the_first_is_gone(process: Waiting) -> None:
    """Though no line is open yet, by which it could be told."""
    holder = Waiting(process.server, 1).takes("a", expire=100)
    process.server.clock.advance(0.01)
    process.sticks_at = "connect"
    first, second, third = (process.takes("a", wait=60) for _ in range(3))
    process.server.clock.advance(0.1)
    holder.ends()
    process.server.clock.advance(0.4)
    assert first.held

    first.ends()
    process.server.clock.advance(0.4)  # it may look after 375 ms

    assert (second.held, third.held) == (True, False)


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.002])
def test_first_whose_lease_is_over_when_it_learns_of_it_stays_the_first(
    process: Waiting, moment: float
) -> None:
    takings = [process.takes("a", wait=60, expire=1) for _ in range(COUNT)]
    process.server.clock.advance(moment)
    process.lease_loop.stand_still(1.1)

    assert entered(process, takings, 20) == list(range(COUNT))


@pytest.mark.parametrize("seconds", [2.0, 2.4, 2.6, 4.0])
def test_waiters_that_learn_too_late_that_it_is_their_turn_keep_their_order(
    process: Waiting, seconds: float
) -> None:
    holder = Waiting(process.server, 1).takes("a", expire=60)
    process.server.clock.advance(0.01)
    takings = []
    for _ in range(COUNT):
        takings.append(process.takes("a", wait=60, expire=60))
        process.server.clock.advance(0.1)

    process.lease_loop.stand_still(seconds)
    holder.ends()

    assert entered(process, takings, 20) == list(range(COUNT))


class Told:
    """Whether it was told."""

    def __init__(self) -> None:
        self.signal: list[Signal] = []

    def notify(self, signal: Signal) -> None:
        self.signal.append(signal)


def test_only_the_next_is_told_that_it_is_the_first() -> None:
    arrivals, claims = ArrivalOrder(), [new_claim("a") for _ in range(4)]
    told = [Told() for _ in claims]
    for claim, waiter in zip(claims, told, strict=True):
        arrivals.join(b"a", claim)
        arrivals.attend(b"a", claim, waiter)  # type: ignore[arg-type]
    claims[1].state = ENDED  # it was interrupted when it left
    arrivals.attend(b"a", claims[3], None)

    arrivals.leave(b"a", claims[0])
    arrivals.leave(b"a", claims[2])

    assert [waiter.signal for waiter in told] == [[], [], [Signal.FIRST], []]


def test_claim_that_was_interrupted_when_it_left_stands_before_nobody() -> None:
    arrivals, one, other = ArrivalOrder(), new_claim("a"), new_claim("a")
    assert arrivals.join(b"a", one)
    assert not arrivals.join(b"a", other)

    one.state = ENDED

    assert arrivals.is_first(b"a", other)


def test_nothing_is_kept_of_who_left() -> None:
    arrivals, claims = ArrivalOrder(), [new_claim("a") for _ in range(3)]
    for claim in claims:
        arrivals.join(b"a", claim)
    for claim in claims:
        arrivals.leave(b"a", claim)

    assert arrivals._claims == {}
