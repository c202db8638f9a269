"""Acquisition with lost, late and mixed-up messages: no key remains."""

import math
from asyncio import CancelledError
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError, ResponseError
from redis.exceptions import TimeoutError as TimedOut
from support.acquiring import attempt, tried
from support.faults import (
    Connecting,
    interrupted,
    mismatched,
    paused,
    raising,
    refused,
    reply_lost,
    request_lost,
    resent,
    slow,
    swallowed,
    timed_out,
)
from support.releases import KEY, SECOND
from support.simulation import SimulatedPort, cluster_port, new_claim

from redis_lock_decorators._flow.retries import CLEANUP, OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, end_of
from redis_lock_decorators._flow.undo import UNDO_TIME
from redis_lock_decorators._io import client_errors
from redis_lock_decorators.errors import LockError

# Requests that fail


@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lost_message_costs_no_pause_and_no_lock(fate: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [fate]

    refusal = attempt(port, claim)

    assert refusal is None
    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier
    assert sum(port.pauses) == 0


def test_wait_of_zero_survives_one_lost_reply() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [reply_lost]

    refusal = attempt(port, claim, wait=0)

    assert refusal is None
    assert port.verbs == ["acquire", "acquire"]


def test_deadline_after_lost_replies_starts_at_the_last_send_time() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=10)
    port.latency = 0.5
    port.faults = [reply_lost, reply_lost]

    attempt(port, claim)

    sent = tried(port)[-1]
    assert sent > 1001
    assert claim.deadline == pytest.approx(sent + 10 - 0.102)
    assert port.now() + port.server.left(KEY) > claim.deadline


def test_outage_shorter_than_the_wait_is_survived() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.usual = request_lost
    port.clock.at(1003, lambda: setattr(port, "usual", reply_lost))
    port.clock.at(1004, lambda: setattr(port, "usual", resent))

    refusal = attempt(port, claim, wait=10)

    assert refusal is None
    assert claim.is_live(port.now())


@pytest.mark.parametrize(("wait", "longest"), [(0, 0.1), (1, 1), (60, OUTAGE), (math.inf, OUTAGE)])
def test_dead_server_is_given_up_after_an_outage_or_the_wait(wait: float, longest: float) -> None:
    port = SimulatedPort()
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        attempt(port, new_claim("a"), wait)

    waited = port.now() - 1000
    assert waited <= longest + 2 * port.latency
    assert waited >= longest - 1 or longest < 1


def test_cleanup_of_a_failed_acquisition_is_queued_behind_others() -> None:
    """If many give up together, the server answers other requests for more than a second."""
    asked = []

    class Noting(SimulatedPort):
        async def send(self, *command: Any, until: float, **options: Any) -> Any:
            asked.append((until - self.now(), end_of(until) - self.now()))
            if len(asked) == 1:
                raise KeyboardInterrupt
            return await super().send(*command, until=until, **options)

    port = Noting()
    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.verbs == ["release"]
    assert asked[1:] == [(pytest.approx(ROUND_TRIP), pytest.approx(CLEANUP))]


@pytest.mark.parametrize("wait", [0.0, 0.5, 1.0, 3.0])
def test_silent_server_ends_the_wait_in_time(wait: float) -> None:
    port = SimulatedPort()
    port.usual = swallowed

    with pytest.raises(TimedOut):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= max(wait, ROUND_TRIP) + UNDO_TIME + 1e-6
    assert port.verbs == ["acquire", "release"]


@pytest.mark.parametrize("wait", [60, math.inf])
def test_silent_server_is_an_outage_even_if_the_client_has_no_timeout(wait: float) -> None:
    port = SimulatedPort()
    port.usual, port.patience = swallowed, math.inf

    with pytest.raises(TimedOut):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP + UNDO_TIME


def test_each_outage_of_a_long_wait_has_its_own_limit() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 20)
    for start in (1002, 1008, 1014):
        port.clock.at(start, lambda: setattr(port, "usual", request_lost))
        port.clock.at(start + 4, lambda: setattr(port, "usual", reply_lost))
        port.clock.at(start + 4.5, lambda: setattr(port, "usual", resent))

    refusal = attempt(port, new_claim("a"), wait=30)

    assert refusal is None
    assert port.now() > 1020


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
        NoPermissionError("this user has no permissions to run the 'evalsha' command"),
        ValueError("the program is wrong"),
    ],
)
def test_definite_error_is_raised_immediately(error: Exception) -> None:
    port = SimulatedPort()
    port.faults = [raising(error)]

    with pytest.raises(type(error)) as caught:
        attempt(port, new_claim("a"))

    assert caught.value is error
    assert port.verbs == ["acquire", "release"]
    assert port.pauses == []


def test_definite_error_ends_the_repetitions() -> None:
    port = SimulatedPort()
    port.faults = [reply_lost, raising(ResponseError("OOM command not allowed"))]

    with pytest.raises(ResponseError, match="OOM"):
        attempt(port, new_claim("a"))

    assert port.verbs == ["acquire", "acquire", "release"]
    assert port.server.value(KEY) is None


def test_key_with_other_data_raises_an_error_of_the_lock() -> None:
    port = SimulatedPort()
    port.faults = [raising(ResponseError("WRONGTYPE Operation against a key holding the wrong"))]

    with pytest.raises(LockError, match="holds other data") as caught:
        attempt(port, new_claim("a"))

    assert caught.value.lock_name == "a"
    assert port.verbs == ["acquire", "release"]


# No key remains


@pytest.mark.parametrize(
    "faults",
    [
        [interrupted(KeyboardInterrupt())],
        [interrupted(SystemExit(), reply_left=True)],
        [interrupted(TimeoutError("a signal handler's"))],
        [reply_lost, interrupted(KeyboardInterrupt(), reply_left=True)],
        [reply_lost, raising(ResponseError("NOAUTH Authentication required."))],
        [reply_lost, request_lost],
        [timed_out],
    ],
)
def test_failed_acquisition_leaves_no_key(faults: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = faults

    with pytest.raises(BaseException):  # noqa: B017  # any of them
        attempt(port, claim, wait=0)

    assert "release" in port.verbs
    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())


@pytest.mark.parametrize("before", [[], [refused], [reply_lost], [request_lost]])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, CancelledError])
def test_nothing_is_undone_if_nothing_was_sent(kind: Any, before: Any) -> None:
    """A server to which no connection can be opened would delay the exception."""
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [*before, Connecting(client_errors.mark_unsent(kind()))]

    with pytest.raises(kind):
        attempt(port, claim, wait=5)

    assert port.verbs.count("release") == (before in ([reply_lost], [request_lost]))
    assert port.server.value(KEY) is None
    assert not claim.is_live(port.now())
    assert port.held == {}


def test_interrupt_while_waiting_leaves_no_key() -> None:
    def interrupt() -> None:
        port.server.drop(KEY)
        raise KeyboardInterrupt

    port = SimulatedPort()
    port.server.put(KEY, "another", 60)
    port.clock.at(1000.55, interrupt)

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"), wait=5)

    assert port.server.value(KEY) is None


def test_failed_acquisition_does_not_affect_the_holder() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)
    port.faults = [interrupted(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.server.value(KEY) == "another"


def test_interrupted_acquisition_is_undone_though_cut_once() -> None:
    port = SimulatedPort()
    port.faults = [interrupted(KeyboardInterrupt()), request_lost]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.server.value(b"sys:lock:a") is None


def test_failed_cleanup_does_not_hide_the_error() -> None:
    port = SimulatedPort()
    port.faults, port.usual = [interrupted(KeyboardInterrupt())], request_lost

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert [str(error) for error in port.untidy] == ["the request was lost"]


def test_cleanup_at_a_failing_node_does_not_prevent_others() -> None:
    port = cluster_port()
    port.faults = [None, interrupted(KeyboardInterrupt()), request_lost]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a", "b"))

    assert port.server.value(SECOND) is None


# Replies to other requests


@pytest.mark.parametrize(
    "reply",
    [
        *(None, True, False, 0, 1, 1.5, b"OK", "OK", b"", "another:1", b"another:1"),
        *([], [None], [[]], [b"another:1"], [b"another:1", b"x", 5], [1, 2, 3], {}, {b"a": b"b"}),
        *(set(), {b"a"}, b"\xff\xfe", [b"\xff"]),
    ],
    ids=repr,
)
def test_reply_to_another_command_is_rejected(reply: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder == "another"
    assert port.idle_drops == 1
    assert port.verbs == ["acquire", "acquire"]


def test_reply_to_an_earlier_request_is_rejected() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [mismatched(f"{claim.identifier}:0")]

    refusal = attempt(port, claim)

    assert refusal is None
    assert port.idle_drops == 1
    assert claim.deadline == pytest.approx(tried(port)[1] + 10 - 0.102)


def test_unread_reply_after_an_interrupt_is_never_used() -> None:
    port, other = SimulatedPort(), new_claim("b")
    port.server.put(b"sys:lock:b", "another", 60)
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    refusal = attempt(port, other, wait=0)

    assert refusal is not None
    assert refusal.holder == "another"


def test_permanently_mismatched_replies_end_in_an_error_and_no_key() -> None:
    port = SimulatedPort()
    port.usual = mismatched(b"OK")

    with pytest.raises(LockError, match="another command"):
        attempt(port, new_claim("a"), wait=60)

    assert port.now() - 1000 <= OUTAGE + 0.1
    assert port.server.value(KEY) is None


# A reply that arrives too late


@pytest.mark.parametrize("pause", [0.99, 2.0, 100.0])
def test_lease_whose_reply_arrives_after_its_deadline_is_not_held(pause: float) -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [paused(pause)]

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder is None
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None
    assert port.held == {}


def test_waiter_tries_again_after_a_reply_that_arrived_too_late() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [paused(2)]

    refusal = attempt(port, claim, wait=5)

    assert refusal is None
    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier


def test_lock_acquired_by_another_is_not_held_after_a_lost_reply() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [reply_lost, slow(2)]
    port.clock.at(1001.5, lambda: port.server.put(KEY, "another", 60))

    refusal = attempt(port, claim, wait=3)

    assert refusal is not None
    assert refusal.holder == "another"
