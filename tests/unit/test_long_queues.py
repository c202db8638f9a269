"""Where very many died while they waited, no request takes long, and those behind them come in."""

from __future__ import annotations

from typing import Any

import pytest
from model.scripts import Scripts
from support.simulated_queue import Taking, Waiting
from support.simulated_server import Clock, SimulatedServer

from redis_lock_decorators._rules.keys import with_queue

KEY, QUEUE, FACTS = with_queue((b"sys:lock:a",))
MANY = 6 * Scripts.most


class Server(SimulatedServer):
    """Counts how many places each request takes from the queue, in ``taken``."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.taken: list[int] = []

    def run(self, command: tuple[Any, ...]) -> Any:
        before = len(self.members(QUEUE))
        try:
            return super().run(command)
        finally:
            self.taken.append(before - len(self.members(QUEUE)))


@pytest.fixture
def server() -> Server:
    return Server()


def holder(server: Server, **options: Any) -> Taking:
    taking = Waiting(server, 100).takes(**options)
    server.clock.advance(0.01)
    assert taking.held
    return taking


def waiting(server: Server, number: int, **options: Any) -> Taking:
    """A process with a waiter in the queue."""
    taking = Waiting(server, number).takes(wait=60, **options)
    server.clock.advance(0.05)
    assert taking.claim.queue_entry in server.members(QUEUE)
    return taking


def dead(server: Server, count: int, first: int = 1, processes: int = 7) -> None:
    """So many places of processes that nobody hears, from this ticket on."""
    places = {f"gone:{at % processes}|{first + at:032x}|2500": first + at for at in range(count)}
    server._stored[QUEUE] = ({**server.members(QUEUE), **places}, server._now() + 600)


@pytest.mark.parametrize("processes", [1, 7, MANY])
def test_waiters_behind_many_dead_enter_in_their_order_and_at_once(
    server: Server, processes: int
) -> None:
    held = holder(server, expire=60)
    dead(server, MANY, processes=processes)
    waiters = [waiting(server, number) for number in range(3)]

    held.ends()
    server.clock.advance(0.5)
    first, second, third = waiters

    assert (first.held, second.held, third.held) == (True, False, False)
    assert max(server.taken) <= Scripts.most + 1
    first.ends()
    server.clock.advance(0.1)
    assert (second.held, third.held) == (True, False)


def test_process_that_let_the_lock_go_to_many_dead_is_no_suspect(server: Server) -> None:
    held = holder(server, expire=60)
    process = Waiting(server, 0)
    first = process.takes(wait=60)
    server.clock.advance(0.05)
    held.ends()
    server.clock.advance(0.1)
    assert first.held
    dead(server, MANY, first=100)
    second = process.takes(wait=60)
    server.clock.advance(0.05)
    third = waiting(server, 1)

    first.ends()
    server.clock.advance(0.5)

    assert (second.held, third.held) == (True, False)


def test_waiter_among_many_dead_finds_its_turn_by_itself(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, MANY)
    waiter = waiting(server, 0)
    dead(server, MANY, first=MANY + 100)

    held.ends()
    server.clock.advance(0.5)

    assert waiter.held
    assert max(server.taken) <= Scripts.most_unreached + 1


def test_waiter_among_very_many_dead_finds_its_turn_by_itself(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, 3 * Scripts.most_unreached)
    waiter = waiting(server, 0)
    dead(server, MANY, first=3 * Scripts.most_unreached + 100)

    held.ends()
    server.clock.advance(5)

    assert waiter.held
    assert max(server.taken) <= Scripts.most_unreached + 1


def test_newcomers_that_take_the_lock_meanwhile_keep_nobody_from_it(server: Server) -> None:
    server.subscribers.clear()
    held = holder(server, expire=60)
    dead(server, MANY)
    waiter = waiting(server, 0)
    waiter.process.lease_loop.stand_still(60)  # it is slow to look by itself
    waiter.process.lines[-1].is_silent = True

    for number in range(1, 2 * MANY // Scripts.most):
        held.ends()
        server.clock.advance(0.001)
        held = Waiting(server, number).takes(wait=0.0)
        server.clock.advance(0.01)
        if not held.held:
            break

    assert server.value(KEY) == waiter.claim.identifier


def test_nothing_is_left_of_many_dead_that_nobody_stands_behind(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, MANY)

    held.ends()
    server.clock.advance(0.1)
    for number in range(2 * MANY // Scripts.most):
        taking = Waiting(server, number).takes(wait=0.0)
        server.clock.advance(0.01)
        assert taking.held
        taking.ends()
        server.clock.advance(0.01)

    assert [server.value(KEY), server.members(QUEUE), server.members(FACTS)] == [None, {}, {}]


def test_what_is_noted_of_waiters_ends_though_the_walk_does_not(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, 2 * Scripts.most_unreached)

    held.ends()
    server.clock.advance(0.1)

    assert server.members(QUEUE)
    assert all(server.left(key) < 601 for key in (QUEUE, FACTS))
