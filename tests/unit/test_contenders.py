"""Nobody who waits here is overtaken by who began later."""

from __future__ import annotations

import pytest
from support.simulated_queue import Taking, Waiting
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators.flow.contenders import Contenders

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


def test_claim_that_was_interrupted_when_it_left_stands_before_nobody() -> None:
    contenders, one, other = Contenders(), new_claim("a"), new_claim("a")
    assert contenders.join(b"a", one)
    assert not contenders.join(b"a", other)

    one.ended = True

    assert contenders.is_first(b"a", other)


def test_nothing_is_kept_of_who_left() -> None:
    contenders, claims = Contenders(), [new_claim("a") for _ in range(3)]
    for claim in claims:
        contenders.join(b"a", claim)
    for claim in claims:
        contenders.leave(b"a", claim)

    assert contenders._claims == {}
