"""Subscribers that hang or fail: waiters recheck on their own and are soon notified again."""

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

#: Commands at which a subscription can hang while it is opened, and while it is open.
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
    """Apply a fate to the next request with this command."""
    fates = iter([fate])

    def usual(request: Any) -> Any:
        is_meant = request.command[0] == verb
        return (next(fates, delivered) if is_meant else delivered)(request)

    process.port.usual = usual


def refuse(process: SimulatedProcess, verb: str) -> None:
    """Refuse every request with this command."""

    def usual(request: Any) -> Any:
        if request.command[0] == verb:
            raise REFUSED
        return delivered(request)

    process.port.usual = usual


def hang_at(process: SimulatedProcess, step: str) -> None:
    """Let the next subscription hang at ``step``, or the next request with this command."""
    if step in ("PUBLISH", "PUBSUB"):
        once(process, step, swallowed)
    else:
        process.hangs_at = step


def is_notified(process: SimulatedProcess) -> bool:
    return process.subscriber is not None and process.subscriber.is_open


@pytest.mark.parametrize("free_after", [0.0, 1.0, 3.0, 6.0, 9.0])
@pytest.mark.parametrize("place", [*OPENING, *OPEN])
def test_waiter_acquires_a_free_lock_though_its_subscriber_hangs(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    place: str,
    free_after: float,
) -> None:
    hang_at(process, place)
    waiter = process.acquire(wait=600)
    server.clock.advance(0.1)
    if place in OPEN:
        process.subscriptions[-1].is_silent = True
    server.clock.advance(free_after)

    server.drop(holder.claim.keys[0])  # without any notification
    server.clock.advance(3)

    assert waiter.held


@pytest.mark.parametrize("place", [*OPENING, "PING"])
def test_subscriber_that_hung_soon_receives_messages_again(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition, place: str
) -> None:
    hang_at(process, place)
    waiter = process.acquire(wait=600)
    server.clock.advance(7)
    process.port.log.clear()

    holder.release()
    server.clock.advance(0.01)

    assert waiter.held
    assert "acquire" not in process.port.verbs, "it was not notified"


def test_later_waiters_do_not_join_a_subscriber_that_hangs(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    hang_at(process, "SUBSCRIBE")
    process.acquire(wait=1)
    server.clock.advance(4)

    process.acquire(wait=600)
    server.clock.advance(0.1)

    assert is_notified(process)


def test_unusable_subscription_is_opened_at_growing_intervals(
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


# Unavailable subscriptions


def test_check_of_a_subscription_leaves_a_demoted_server(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    def counts_none_over_an_old_connection(request: Any) -> Any:
        is_old = request.command[0] == "PUBLISH" and process.port.idle_drops == 0
        return 0 if is_old else delivered(request)

    process.port.usual = counts_none_over_an_old_connection
    process.acquire(wait=600)

    server.clock.advance(1)

    assert is_notified(process)
    assert process.port.idle_drops == 1


def test_one_unreachable_subscription_does_not_end_subscribing(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    once(process, "PUBLISH", lambda request: 0)
    process.acquire(wait=600)

    server.clock.advance(0.1)

    assert is_notified(process)
    assert len(process.subscriptions) == 2


def test_waiters_are_notified_again_after_a_temporary_failure(
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
    was_notified = is_notified(process)
    holder.release()
    server.clock.advance(0.01)

    assert was_notified
    assert [early.held, late.held].count(True) == 1
    assert "acquire" not in process.port.verbs


@pytest.mark.parametrize("place", ["connect", "PUBLISH"])
@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError(), OSError(24, "too many files")]
)
def test_local_failure_does_not_end_subscribing(
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
    was_notified = is_notified(process)
    process.port.log.clear()
    holder.release()
    server.clock.advance(0.01)

    assert was_notified
    assert waiter.held
    assert "acquire" not in process.port.verbs, "it was not notified"
    assert len(caplog.records) == 1


def test_waiter_acquires_a_free_lock_without_a_subscription(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    process.fails_with = RuntimeError("can't start new thread")
    waiter = process.acquire(wait=600)
    server.clock.advance(1)

    holder.release()
    server.clock.advance(1)

    assert waiter.held


def test_refused_password_is_tried_at_growing_intervals(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    process.fails_with = AuthenticationError("invalid username-password pair")
    for _ in range(30):
        process.acquire(wait=1)
        server.clock.advance(1)

    assert process.tries < 6


def test_permanent_refusal_is_rarely_repeated_and_logged_once(
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


def test_waiters_poll_without_the_right_to_hand_off_locks(
    server: SimulatedServer,
    process: SimulatedProcess,
    holder: Acquisition,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse_scripts(process, "recheck", "cancel")
    waiters = [process.acquire(wait=math.inf) for _ in range(2)]
    server.clock.advance(0.1)

    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        server.drop(holder.claim.keys[0])  # without any notification
        server.clock.advance(3)
        first = [waiter for waiter in waiters if waiter.held]
        first[0].claim.deadline = -math.inf
        server.drop(holder.claim.keys[0])
        server.clock.advance(3)

    assert len(first) == 1
    assert all(waiter.held for waiter in waiters)
    assert process.lease_loop.failures == []
    assert len(caplog.records) == 1
    assert "no permission to grant locks" in caplog.text


def test_refused_hand_off_is_tried_at_growing_intervals(
    server: SimulatedServer, process: SimulatedProcess, holder: Acquisition
) -> None:
    refuse_scripts(process, "recheck")
    for _ in range(30):
        process.acquire(wait=10)
        server.clock.advance(10)

    assert 4 <= process.port.verbs.count("recheck") <= 9


def refuse_scripts(process: SimulatedProcess, *verbs: str) -> None:
    """Refuse commands inside the given scripts."""

    def usual(request: Any) -> Any:
        if process.port.verbs[-1] in verbs:
            raise ResponseError("ACL failure in script: User u has no permissions")
        return delivered(request)

    process.port.usual = usual


def test_unavailable_subscriber_keeps_no_client_alive() -> None:
    client_state, subscriber = unavailable_state()
    client = subscriber._port.client
    kept = weakref.ref(client)

    assert client_state.subscriber(subscriber._port, b"a").is_unavailable
    assert client_state.subscribers == {}
    del client, subscriber
    gc.collect()

    assert kept() is None


def unavailable_state() -> tuple[ClientState[Any], Subscriber]:
    """The state of a client whose subscriber is unavailable, and that subscriber."""
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
