"""Listeners that get stuck or fail: waiters look by themselves, and are told again soon."""

from __future__ import annotations

import gc
import logging
import math
import weakref
from typing import Any

import pytest
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.exceptions import ConnectionError as Disconnected
from support.faults import Fate, delivered, raising, swallowed
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedServer

from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._io.client_state import ClientState

#: Where a line can get stuck while it is opened, and while it is open.
OPENING = ["connect", "INFO", "SUBSCRIBE", "PUBLISH", "PUBSUB"]
OPEN = ["PING", "close"]
REFUSED = NoPermissionError("no permissions")


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(Clock())


@pytest.fixture
def process(server: SimulatedServer) -> SimulatedProcess:
    return SimulatedProcess(server, 1)


@pytest.fixture
def holder(server: SimulatedServer) -> Acquisition:
    holder = SimulatedProcess(server, 0).acquire(expire=600)
    server.clock.advance(0.01)
    return holder


def once(process: SimulatedProcess, verb: str, fate: Fate) -> None:
    """Let the next request of a kind meet a fate."""
    fates = iter([fate])

    def usual(request: Any) -> Any:
        is_meant = request.command[0] == verb
        return (next(fates, delivered) if is_meant else delivered)(request)

    process.port.usual = usual


def refuse(process: SimulatedProcess, verb: str) -> None:
    """Refuse every request of a kind from now on."""

    def usual(request: Any) -> Any:
        if request.command[0] == verb:
            raise REFUSED
        return delivered(request)

    process.port.usual = usual


def stick(process: SimulatedProcess, place: str) -> None:
    """Let the next line get stuck there, or the next request of a kind."""
    if place in ("PUBLISH", "PUBSUB"):
        once(process, place, swallowed)
    else:
        process.hangs_at = place


def is_notified(process: SimulatedProcess) -> bool:
    return process.subscriber is not None and process.subscriber.is_open


@pytest.mark.parametrize("free_after", [0.0, 1.0, 3.0, 6.0, 9.0])
@pytest.mark.parametrize("place", [*OPENING, *OPEN])
def test_waiter_gets_a_free_lock_wherever_its_listener_is_stuck(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    place: str,
    free_after: float,
) -> None:
    stick(process, place)
    waiter = process.acquire(wait=600)
    server.clock.advance(0.1)
    if place in OPEN:
        process.subscriptions[-1].is_silent = True
    server.clock.advance(free_after)

    server.drop(holder.claim.keys[0])  # nobody is told of that
    server.clock.advance(3)

    assert waiter.held


@pytest.mark.parametrize("place", [*OPENING, "PING"])
def test_listener_that_was_stuck_hears_again_soon(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition, place: str
) -> None:
    stick(process, place)
    waiter = process.acquire(wait=600)
    server.clock.advance(7)
    process.port.log.clear()

    holder.release()
    server.clock.advance(0.01)

    assert waiter.held
    assert "acquire" not in process.port.verbs, "it was not told"


def test_waiters_that_come_later_do_not_join_a_listener_that_is_stuck(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    stick(process, "SUBSCRIBE")
    process.acquire(wait=1)
    server.clock.advance(4)

    process.acquire(wait=600)
    server.clock.advance(0.1)

    assert is_notified(process)


def test_line_that_cannot_be_made_use_of_is_tried_more_and_more_rarely(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    def demoted(request: Any) -> Any:
        if request.command[0] == "PUBLISH":
            raise Disconnected("gone")
        return delivered(request)

    process.port.usual = demoted
    process.acquire(wait=600)

    server.clock.advance(10)

    assert len(process.subscriptions) < 50


# Deafness


def test_check_of_a_subscription_leaves_a_connection_to_a_demoted_server(
    server: SimulatedServer, process: Waiting, holder: Taking
) -> None:
    def counts_none_over_an_old_connection(request: Any) -> Any:
        is_old = request.command[0] == "PUBLISH" and process.port.idle_drops == 0
        return 0 if is_old else delivered(request)

    process.port.usual = counts_none_over_an_old_connection
    process.takes(wait=600)

    server.clock.advance(1)

    assert is_notified(process)
    assert process.port.idle_drops == 1


def test_one_line_that_is_not_heard_makes_nobody_deaf(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    once(process, "PUBLISH", lambda request: 0)
    process.acquire(wait=600)

    server.clock.advance(0.1)

    assert is_notified(process)
    assert len(process.subscriptions) == 2


def test_waiters_are_told_again_after_a_passing_failure(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    refuse(process, "PUBLISH")
    early = process.acquire(wait=600)
    server.clock.advance(1)
    process.port.usual = delivered

    server.clock.advance(5)
    late = process.acquire(wait=600)
    server.clock.advance(1)
    process.port.log.clear()
    told = is_notified(process)
    holder.release()
    server.clock.advance(0.01)

    assert told
    assert [early.held, late.held].count(True) == 1
    assert "acquire" not in process.port.verbs


@pytest.mark.parametrize("place", ["connect", "PUBLISH"])
@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError(), OSError(24, "too many files")]
)
def test_failure_on_this_side_makes_nobody_deaf(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    error: Exception,
    place: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if place == "connect":
        process.fails_with = error
    else:
        process.port.usual = lambda request: (
            raising(error)(request) if request.command[0] == "PUBLISH" else delivered(request)
        )
    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        waiter = process.acquire(wait=600)
        server.clock.advance(1)
    process.fails_with = None
    process.port.usual = delivered

    server.clock.advance(1.5)
    told = is_notified(process)
    process.port.log.clear()
    holder.release()
    server.clock.advance(0.01)

    assert told
    assert waiter.held
    assert "acquire" not in process.port.verbs, "it was not told"
    assert len(caplog.records) == 1


def test_waiter_gets_a_free_lock_while_no_line_can_be_made(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    process.fails_with = RuntimeError("can't start new thread")
    waiter = process.acquire(wait=600)
    server.clock.advance(1)

    holder.release()
    server.clock.advance(1)

    assert waiter.held


def test_refused_password_is_met_more_and_more_rarely(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    process.fails_with = AuthenticationError("invalid username-password pair")
    for _ in range(30):
        process.acquire(wait=1)
        server.clock.advance(1)

    assert process.tries < 6


def test_lasting_refusal_is_met_more_and_more_rarely_and_told_once(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse(process, "PUBLISH")
    tries = []
    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        for _ in range(300):
            process.acquire(wait=1)
            server.clock.advance(1)
            tries.append(len(process.subscriptions))

    assert tries[3] == 1
    assert 2 <= tries[15] <= 3
    assert 6 <= tries[-1] <= 9
    assert len(caplog.records) == 1


def test_waiters_look_for_a_lock_that_they_may_not_have_handed_on(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse_scripts(process, "recheck", "cancel")
    waiters = [process.acquire(wait=math.inf) for _ in range(2)]
    server.clock.advance(0.1)

    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        server.drop(holder.claim.keys[0])  # nobody is told of that
        server.clock.advance(3)
        first = [waiter for waiter in waiters if waiter.held]
        first[0].claim.deadline = -math.inf
        server.drop(holder.claim.keys[0])
        server.clock.advance(3)

    assert len(first) == 1
    assert all(waiter.held for waiter in waiters)
    assert process.lease_loop.failures == []
    assert len(caplog.records) == 1
    assert "no permission to hand off locks" in caplog.text


def test_refusal_to_hand_on_is_met_more_and_more_rarely(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    refuse_scripts(process, "recheck")
    for _ in range(30):
        process.acquire(wait=10)
        server.clock.advance(10)

    assert 4 <= process.port.verbs.count("recheck") <= 9


def refuse_scripts(process: SimulatedProcess, *verbs: str) -> None:
    """Refuse what some scripts contain."""

    def usual(request: Any) -> Any:
        if process.port.verbs[-1] in verbs:
            raise ResponseError("ACL failure in script: User u has no permissions")
        return delivered(request)

    process.port.usual = usual


def test_deaf_listener_keeps_no_client_alive() -> None:
    client_state, subscriber = unavailable_state()
    client = subscriber._port.client
    kept = weakref.ref(client)

    assert client_state.subscriber(subscriber._port, b"a").is_unavailable
    assert client_state.subscribers == {}
    del client, subscriber
    gc.collect()

    assert kept() is None


def unavailable_state() -> tuple[ClientState[Any], Subscriber]:
    """What is known of a client on whose connections nothing can be heard."""
    process = SimulatedProcess(SimulatedServer(Clock()))
    lease_loop, port = process.lease_loop, process.port
    port.client = Client()
    client_state: ClientState[Any] = ClientState(port.client, None, lease_loop)
    subscriber = client_state.subscriber(port, b"a")
    subscriber._on_failure(REFUSED)
    subscriber._stop()
    return client_state, subscriber


class Client:
    def execute_command(self) -> None: ...
