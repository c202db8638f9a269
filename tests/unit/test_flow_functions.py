"""``acquire_lock``: SET NX PX, with lost and mixed-up messages."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError, ResponseError
from redis.exceptions import TimeoutError as TimedOut
from support.faults import (
    Request,
    delivered,
    interrupted,
    mismatched,
    paused,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
    timed_out,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.functions import acquire_lock, release_lock
from redis_lock_decorators._flow.redispy_lock import is_locked
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run

KEY = b"sys:lock:a"


def attempt(port: SimulatedPort, claim: Claim, wait: float = 10, delta: float = 0.1) -> bool:
    return run(acquire_lock(port, claim, wait, delta))


def tried(port: SimulatedPort) -> list[float]:
    return [sent.at for sent in port.log if sent.verb == "SET"]


@pytest.mark.parametrize("identifier", [None, "mine"])
def test_free_lock_is_acquired_by_one_set(identifier: str | None) -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=10, identifier=identifier)

    done = attempt(port, claim)

    assert done
    assert port.verbs == ["SET"]
    assert port.server.value(KEY) == claim.identifier
    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)


def test_wait_of_zero_tries_exactly_once() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)

    done = attempt(port, new_claim("a"), wait=0)

    assert not done
    assert port.verbs.count("SET") == 1
    assert port.pauses == []
    assert port.server.value(KEY) == "another"


def test_lock_freed_during_a_short_wait_is_acquired_at_its_end() -> None:
    port = SimulatedPort()
    port.latency = 0
    port.server.put(KEY, "another", 0.03)

    done = attempt(port, new_claim("a"), wait=0.05, delta=3)

    assert done
    assert tried(port) == [1000, 1000.05]


@given(
    wait=st.floats(min_value=0, max_value=20),
    delta=st.floats(min_value=0.01, max_value=5),
    latency=st.floats(min_value=0, max_value=0.2),
    seed=st.integers(min_value=0, max_value=1000),
)
def test_waiter_gives_up_neither_early_nor_late(
    wait: float, delta: float, latency: float, seed: int
) -> None:
    port = SimulatedPort(seed=seed)
    port.latency = latency
    port.server.put(KEY, "another")

    done = attempt(port, new_claim("a"), wait, delta)

    waited = port.now() - 1000
    assert not done
    assert wait - 1e-6 <= waited <= wait + 4 * latency + 1e-6
    assert all(delta / 2 <= pause <= delta * 1.5 for pause in port.pauses[:-1])


def test_time_that_passes_between_two_lines_makes_no_pause_negative() -> None:
    class Ticking(SimulatedPort):
        def now(self) -> float:
            self.clock.advance(0.001)
            return super().now()

    for tenths in range(10, 300):  # of a millisecond
        port = Ticking()
        port.server.put(KEY, "another", 60)

        assert not attempt(port, new_claim("a"), wait=tenths / 10_000)


def test_waiter_without_a_limit_waits_until_the_lock_is_free() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 86_400)

    done = attempt(port, new_claim("a"), wait=math.inf, delta=60)

    assert done


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lost_message_costs_no_pause_and_no_lock(fate: Any, text: bool) -> None:
    port, claim = SimulatedPort(text=text), new_claim("a")
    port.faults = [fate]

    done = attempt(port, claim, wait=0)

    assert done
    assert port.server.value(KEY) == claim.identifier
    assert sum(port.pauses) == 0


def test_key_with_an_identifier_of_the_caller_does_not_count_as_held() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "mine", 60)

    done = attempt(port, new_claim("a", identifier="mine"), wait=0)

    assert not done


def test_lock_found_to_be_held_has_its_whole_lease() -> None:
    port = SimulatedPort()
    port.usual = request_lost
    port.faults = [reply_lost]
    port.clock.at(1003, lambda: setattr(port, "usual", delivered))

    done = attempt(port, new_claim("a", expire=5))

    assert done
    assert port.server.left(KEY) > 4.5


@pytest.mark.parametrize("pause", [1.0, 100.0])
def test_lease_whose_reply_arrives_after_its_end_is_not_held(pause: float) -> None:
    port = SimulatedPort()
    port.faults = [paused(pause)]

    done = attempt(port, new_claim("a", expire=1), wait=0)

    assert not done or port.server.value(KEY) is not None


@pytest.mark.parametrize(("wait", "longest"), [(0, 0.1), (1, 1), (60, OUTAGE), (math.inf, OUTAGE)])
def test_dead_server_is_given_up_after_an_outage_or_the_wait(wait: float, longest: float) -> None:
    port = SimulatedPort()
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= longest + 2 * port.latency


@pytest.mark.parametrize("wait", [0.0, 0.5, 3.0, 60, math.inf])
def test_silent_server_ends_the_wait_in_time(wait: float) -> None:
    port = SimulatedPort()
    port.usual, port.patience = swallowed, math.inf

    with pytest.raises(TimedOut):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= min(max(wait, ROUND_TRIP), OUTAGE) + ROUND_TRIP


def test_definite_error_is_raised_immediately() -> None:
    port = SimulatedPort()
    error = ResponseError("OOM command not allowed")
    port.faults = [raising(error)]

    with pytest.raises(ResponseError) as caught:
        attempt(port, new_claim("a"))

    assert caught.value is error
    assert port.verbs.count("SET") == 1


@pytest.mark.parametrize(
    "faults",
    [
        [interrupted(KeyboardInterrupt())],
        [interrupted(SystemExit(), reply_left=True)],
        [reply_lost, interrupted(KeyboardInterrupt())],
        [reply_lost, raising(ResponseError("NOPERM"))],
        [reply_lost, request_lost],
        [timed_out],
    ],
)
def test_failed_acquisition_leaves_no_key(faults: Any) -> None:
    port = SimulatedPort()
    port.faults = faults

    with pytest.raises(BaseException):  # noqa: B017  # any of them
        attempt(port, new_claim("a"), wait=0)

    assert port.server.value(KEY) is None


@pytest.mark.parametrize(
    "faults",
    [
        [interrupted(KeyboardInterrupt())],
        [raising(ResponseError("OOM command not allowed"))],
        [request_lost, request_lost],
    ],
)
def test_failed_acquisition_does_not_affect_the_same_identifier(faults: Any) -> None:
    port = SimulatedPort()
    port.server.put(KEY, "mine", 60)
    port.faults = faults

    with pytest.raises((KeyboardInterrupt, ResponseError, Disconnected)):
        attempt(port, new_claim("a", identifier="mine"), wait=0)

    assert port.server.value(KEY) == "mine"


# Clients over whose connections replies to other commands may arrive


@pytest.mark.parametrize("reply", [b"OK", True, 1, b"mine"])
@pytest.mark.parametrize("forbidden", [False, True])
def test_ok_to_another_command_acquires_no_lock(reply: Any, forbidden: bool) -> None:
    port = SimulatedPort(may_resend=True)
    port.server.put(KEY, "another", 60)
    port.usual = _without_scripts if forbidden else delivered
    owed = _without_scripts if forbidden else None
    port.faults = [owed, mismatched(reply)] if forbidden else [mismatched(reply)]

    done = attempt(port, new_claim("a"), wait=0)

    assert not done
    assert port.idle_drops == 1
    assert port.server.value(KEY) == "another"


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("identifier", [None, "mine"])
def test_client_that_resends_acquires_a_free_lock_once(forbidden: bool, identifier: Any) -> None:
    port = SimulatedPort(may_resend=True)
    port.usual = _without_scripts if forbidden else delivered

    first = attempt(port, new_claim("a", identifier=identifier), wait=0)
    second = attempt(port, new_claim("a", identifier=identifier), wait=0)

    assert first
    assert not second


@pytest.mark.parametrize("torn", [False, True])
def test_reused_identifier_is_notified_that_its_lock_was_lost(torn: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True), may_resend=True)
    mine = new_claim("a", identifier="mine")
    assert attempt(port, mine, wait=0)
    assert run(release_lock(port, mine, None))
    port.server.is_slot_moving = torn
    mine = new_claim("a", identifier="mine")
    assert attempt(port, mine, wait=0)
    port.server.is_slot_moving = False
    port.server.put(KEY, "external", 10)

    done = run(release_lock(port, mine, None))

    assert not done
    assert port.server.value(KEY) == "external"


@pytest.mark.parametrize("reply", [b"OK", b"mine", 1, None])
def test_holder_is_read_from_a_reply_with_its_own_mark(reply: Any) -> None:
    port = SimulatedPort(may_resend=True)
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]
    found = run(holders(port, (KEY,)))  # type: ignore[arg-type]
    port.faults = [mismatched(reply)]

    assert found == ["another"]
    assert run(is_locked(port, KEY))  # type: ignore[arg-type]
    port.server.drop(KEY)
    assert run(holders(port, (KEY,))) == [None]  # type: ignore[arg-type]


def _without_scripts(request: Request) -> Any:
    if str(request.command[0]).startswith("EVAL"):
        return raising(NoPermissionError("this user has no permissions"))(request)
    return delivered(request)
