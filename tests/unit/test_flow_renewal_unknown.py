"""Renewals without a reply, with a wrong one, or repeated: their outcome is unknown."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import (
    Fate,
    delayed,
    interrupted,
    mismatched,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
    timed_out,
)
from support.renewing import ERRORS, KEY, held, renewed
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired

from redis_lock_decorators._flow.renewal.batch import Renewal, renew
from redis_lock_decorators._flow.requests import Refusal, ReplyMismatch
from redis_lock_decorators._flow.timeouts import TimeLimits, end_of
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_errors import is_unknown

# Unknown outcomes


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__} {error}"[:30])
def test_error_makes_the_outcome_unknown(error: Exception) -> None:
    port = SimulatedPort()
    claims = held(port, 2)
    port.usual = raising(error)

    outcomes = renewed(port, *claims)

    assert outcomes == [error, error]


@pytest.mark.parametrize("fate", [request_lost, reply_lost, swallowed, timed_out, delayed(1)])
def test_closed_connection_and_timeout_make_the_outcome_unknown(fate: Fate) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    deadline = claim.deadline
    port.usual = fate

    (outcome,) = renewed(port, claim)

    assert isinstance(outcome, Exception)
    assert is_unknown(outcome)
    assert claim.deadline == deadline
    assert claim.lost_reason is None


def test_request_is_not_waited_for_past_its_time() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.usual, port.patience = swallowed, math.inf
    before = port.now()

    renewed(port, claim)

    assert port.now() == pytest.approx(before + 3)


@pytest.mark.parametrize(
    "reply",
    [
        *(None, b"OK", 1, b"another:1", [], [b"another:1", 0, b""], b""),
        *([None, 0, b""], [b"OK"], ["another:1", 0, ""]),
    ],
    ids=repr,
)
def test_reply_to_another_command_makes_the_outcome_unknown(reply: Any) -> None:
    port = SimulatedPort()
    claims = held(port, 2)
    port.server.drop(claims[0].keys[0])
    port.faults = [mismatched(reply)]

    outcomes = renewed(port, *claims)

    assert [type(outcome) for outcome in outcomes] == [ReplyMismatch, ReplyMismatch]
    assert port.idle_drops == 1


def test_reply_to_an_earlier_renewal_is_rejected() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        renewed(port, claim)
    port.server.put(KEY, "another", 60)

    (outcome,) = renewed(port, claim)

    assert isinstance(outcome, ReplyMismatch)


# Requests that are repeated or late


def test_renewal_sent_twice_is_done_once() -> None:
    port = SimulatedPort()
    claims = held(port, 2)
    port.server.put(claims[1].keys[0], "another", 60)
    port.faults = [resent]

    outcomes = renewed(port, *claims, seconds=30)

    assert outcomes == [None, Refusal("another")]
    assert port.server.left(claims[0].keys[0]) == pytest.approx(30, abs=0.01)


def test_late_copy_does_not_shorten_a_lease_that_was_extended_since() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [delayed(2)]
    renewed(port, claim, seconds=10)
    renewed(port, claim, seconds=60)

    port.clock.advance(3)

    assert port.server.left(KEY) > 56


def test_late_copy_does_not_affect_the_next_holder() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [delayed(2)]
    renewed(port, claim, seconds=60)
    port.server.put(KEY, "the next", 5)

    port.clock.advance(3)

    assert port.server.value(KEY) == "the next"
    assert port.server.left(KEY) == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("fate", [None, resent, delayed(0.5)])
def test_lost_key_is_never_restored(fate: Any) -> None:
    port = SimulatedPort()
    claims = held(port, 3)
    for claim in claims[:2]:
        port.server.drop(claim.keys[0])
    port.faults = [fate]

    renewed(port, *claims, seconds=60)
    port.clock.advance(1)

    assert [port.server.value(claim.keys[0]) for claim in claims[:2]] == [None, None]


@given(
    states=st.lists(st.sampled_from(["ours", "gone", "another's"]), min_size=1, max_size=12),
    cluster=st.booleans(),
)
def test_outcome_of_each_lease_is_that_of_its_key(states: list[str], cluster: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claims = held(port, len(states))
    for claim, state in zip(claims, states, strict=True):
        if state != "ours":
            port.server.drop(claim.keys[0])
        if state == "another's":
            port.server.put(claim.keys[0], "another", 60)

    outcomes = renewed(port, *claims)

    expected = {"ours": None, "gone": Refusal(None), "another's": Refusal("another")}
    assert outcomes == [expected[state] for state in states]


def test_requests_of_a_renewal_may_be_sent_until_the_lease_ends() -> None:
    """Also the one that follows as the server does not know the script."""
    port = SimulatedPort(SimulatedServer(Clock()))
    claim = acquired(port, "a")
    port.server.loaded.clear()
    sent, send = [], port.send

    async def record(*command: Any, until: float) -> Any:
        sent.append((command[0], end_of(until)))
        return await send(*command, until=until)

    port.send = record  # type: ignore[method-assign]
    now = port.now()

    outcomes = run(renew(port, [Renewal(claim, 10)], TimeLimits(now + 1, now + 3)))

    assert outcomes == [None]
    assert sent == [("EVALSHA", now + 3), ("EVAL", now + 3)]
