"""Many dead waiters in a queue neither slow down requests nor block the waiters behind them."""

from __future__ import annotations

from typing import Any

import pytest
from support.simulated_queue import Acquisition, SimulatedProcess

from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators.testing.fake.clock import Clock
from redis_lock_decorators.testing.fake.scripts import Scripts
from redis_lock_decorators.testing.fake.server import SimulatedServer

KEY, QUEUE, STATES = with_queue((b"sys:lock:a",))
MANY = 6 * Scripts.most


class Server(SimulatedServer):
    """A server that counts the queue entries removed by each request, in ``removed``."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.removed: list[int] = []

    def run(self, command: tuple[Any, ...]) -> Any:
        before = len(self.members(QUEUE))
        try:
            return super().run(command)
        finally:
            self.removed.append(before - len(self.members(QUEUE)))


@pytest.fixture
def server() -> Server:
    return Server()


def holder(server: Server, **options: Any) -> Acquisition:
    attempt = SimulatedProcess(server, 100).acquire(**options)
    server.clock.advance(0.01)
    assert attempt.held
    return attempt


def waiting(server: Server, number: int, **options: Any) -> Acquisition:
    """A queued waiter of another process."""
    attempt = SimulatedProcess(server, number).acquire(wait=60, **options)
    server.clock.advance(0.05)
    assert attempt.claim.queue_entry in server.members(QUEUE)
    return attempt


def dead(server: Server, count: int, first: int = 1, processes: int = 7) -> None:
    """Add entries of dead processes to the queue, with tickets from ``first``."""
    entries = {f"gone:{at % processes}|{first + at:032x}|2500": first + at for at in range(count)}
    server._stored[QUEUE] = ({**server.members(QUEUE), **entries}, server._now() + 600)


@pytest.mark.parametrize("processes", [1, 7, MANY])
def test_waiters_behind_many_dead_enter_in_order_without_delay(
    server: Server, processes: int
) -> None:
    held = holder(server, expire=60)
    dead(server, MANY, processes=processes)
    waiters = [waiting(server, number) for number in range(3)]

    held.release()
    server.clock.advance(0.5)
    first, second, third = waiters

    assert (first.held, second.held, third.held) == (True, False, False)
    assert max(server.removed) <= Scripts.most + 1
    first.release()
    server.clock.advance(0.1)
    assert (second.held, third.held) == (True, False)


def test_process_that_released_to_many_dead_is_not_suspected(server: Server) -> None:
    held = holder(server, expire=60)
    process = SimulatedProcess(server, 0)
    first = process.acquire(wait=60)
    server.clock.advance(0.05)
    held.release()
    server.clock.advance(0.1)
    assert first.held
    dead(server, MANY, first=100)
    second = process.acquire(wait=60)
    server.clock.advance(0.05)
    third = waiting(server, 1)

    first.release()
    server.clock.advance(0.5)

    assert (second.held, third.held) == (True, False)


def test_waiter_between_many_dead_finds_its_turn(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, MANY)
    waiter = waiting(server, 0)
    dead(server, MANY, first=MANY + 100)

    held.release()
    server.clock.advance(0.5)

    assert waiter.held
    assert max(server.removed) <= Scripts.most_unreached + 1


def test_waiter_between_very_many_dead_finds_its_turn(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, 3 * Scripts.most_unreached)
    waiter = waiting(server, 0)
    dead(server, MANY, first=3 * Scripts.most_unreached + 100)

    held.release()
    server.clock.advance(5)

    assert waiter.held
    assert max(server.removed) <= Scripts.most_unreached + 1


def test_newcomers_do_not_keep_the_lock_from_a_waiter(server: Server) -> None:
    server.subscribers.clear()
    held = holder(server, expire=60)
    dead(server, MANY)
    waiter = waiting(server, 0)
    waiter.process.lease_loop.freeze(60)  # its rechecks are late
    waiter.process.subscriptions[-1].is_silent = True

    for number in range(1, 2 * MANY // Scripts.most):
        held.release()
        server.clock.advance(0.001)
        held = SimulatedProcess(server, number).acquire(wait=0.0)
        server.clock.advance(0.01)
        if not held.held:
            break

    assert server.value(KEY) == waiter.claim.identifier


def test_many_dead_without_a_live_waiter_leave_no_keys(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, MANY)

    held.release()
    server.clock.advance(0.1)
    for number in range(2 * MANY // Scripts.most):
        attempt = SimulatedProcess(server, number).acquire(wait=0.0)
        server.clock.advance(0.01)
        assert attempt.held
        attempt.release()
        server.clock.advance(0.01)

    assert [server.value(KEY), server.members(QUEUE), server.members(STATES)] == [None, {}, {}]


def test_records_of_waiters_expire_before_all_dead_are_removed(server: Server) -> None:
    held = holder(server, expire=60)
    dead(server, 2 * Scripts.most_unreached)

    held.release()
    server.clock.advance(0.1)

    assert server.members(QUEUE)
    assert all(server.left(key) < 601 for key in (QUEUE, STATES))
