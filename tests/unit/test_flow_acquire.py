"""Acquisition of one key: when the lock is tried, and how long it is waited for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as Disconnected
from support.acquiring import attempt, tried
from support.faults import (
    delivered,
    reply_lost,
    unsent,
)
from support.releases import FIRST, KEY, SECOND
from support.simulation import (
    SimulatedPort,
    acquired,
    cluster_port,
    new_claim,
)

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP

WAITS = st.floats(min_value=0, max_value=20)
DELTAS = st.floats(min_value=0.01, max_value=5)
LATENCIES = st.floats(min_value=0, max_value=0.2)
SEEDS = st.integers(min_value=0, max_value=1000)


# A busy server


@pytest.mark.parametrize("wait", [0.5, 20])
def test_request_that_was_never_sent_is_a_refusal_with_that_reason(wait: float) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.usual = unsent

    refusal = attempt(port, claim, wait=wait)

    assert refusal == Refusal(None, why="others were before it")
    assert wait <= port.now() - 1000 < wait + ROUND_TRIP + 0.1
    assert set(port.verbs) == {"acquire"}
    assert claim.state is ENDED


def test_request_is_queued_behind_others_for_longer_than_an_outage() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [unsent, unsent, unsent]

    refusal = attempt(port, claim, wait=60)

    assert refusal is None
    assert port.now() - 1000 > 3 * OUTAGE


def test_lost_reply_is_raised_rather_than_an_unsent_request() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults, port.usual = [reply_lost], unsent

    with pytest.raises(Disconnected):
        attempt(port, claim, wait=0.5)


def test_request_never_sent_for_a_second_slot_releases_the_first() -> None:
    port, claim = cluster_port(), new_claim("a", "b")
    port.faults = [delivered, unsent]

    refusal = attempt(port, claim, wait=0)

    assert refusal == Refusal(None, why="others were before it")
    assert port.server.value(FIRST) is None
    assert port.server.value(SECOND) is None


# A free lock


def test_free_lock_is_acquired_by_one_request() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    refusal = attempt(port, claim)

    assert refusal is None
    assert port.verbs == ["acquire"]
    assert port.server.value(KEY) == claim.identifier


def test_server_that_does_not_know_the_script_is_sent_its_text() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.server.loaded.clear()

    refusal = attempt(port, claim)

    assert refusal is None
    assert [sent.command[0] for sent in port.log] == ["EVALSHA", "EVAL"]
    assert port.server.value(KEY) == claim.identifier


def test_deadline_is_counted_from_the_send_time() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=10)
    port.latency = 3

    attempt(port, claim)

    assert claim.deadline == pytest.approx(1000 + 10 - 0.102)
    assert port.server.left(KEY) == pytest.approx(10 - 1.5)


def test_lease_is_sent_in_milliseconds() -> None:
    port = SimulatedPort()
    port.latency = 0

    attempt(port, new_claim("a", expire=0.0005))

    assert port.server.left(KEY) == pytest.approx(0.001)


def test_held_lock_is_registered_in_the_port() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    attempt(port, claim)

    assert port.held == {KEY: claim}


def test_client_may_decode_replies() -> None:
    port = SimulatedPort(text=True)
    port.server.put(KEY, "another", 0.35)

    refusals = attempt(port, new_claim("a"), 0), attempt(port, new_claim("a"), 1)

    assert refusals[0] is not None
    assert refusals[0].holder == "another"
    assert refusals[1] is None


# A held lock


def test_wait_of_zero_tries_exactly_once() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal is not None
    assert port.verbs == ["acquire"]
    assert port.pauses == []


def test_refusal_has_the_holder_and_its_remaining_time() -> None:
    port = SimulatedPort()
    port.latency = 0
    port.server.put(KEY, "another", 60)

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal == Refusal("another", 60.0)


def test_refusal_by_a_key_without_expiry_has_infinite_time() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another")

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal == Refusal("another", math.inf)


def test_refused_acquisition_does_not_change_the_lease_of_the_holder() -> None:
    port = SimulatedPort()
    first, second = acquired(port, "a"), new_claim("a")

    attempt(port, second, wait=0)

    assert port.server.value(KEY) == first.identifier
    assert port.held == {KEY: first}
    assert second.state is ENDED


def test_wait_shorter_than_the_pause_ends_with_a_try() -> None:
    port = SimulatedPort()
    port.latency = 0
    port.server.put(KEY, "another", 60)

    attempt(port, new_claim("a"), wait=0.05, delta=3)

    assert tried(port) == [1000, 1000.05]


def test_lock_freed_during_a_short_wait_is_acquired_at_its_end() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 0.03)

    refusal = attempt(port, new_claim("a"), wait=0.05, delta=3)

    assert refusal is None


@given(wait=WAITS, delta=DELTAS, latency=LATENCIES, seed=SEEDS)
def test_waiter_gives_up_neither_early_nor_late(
    wait: float, delta: float, latency: float, seed: int
) -> None:
    port = SimulatedPort(seed=seed)
    port.latency = latency
    port.server.put(KEY, "another")

    refusal = attempt(port, new_claim("a"), wait, delta)

    waited = port.now() - 1000
    assert refusal is not None
    assert waited >= wait - 1e-6
    assert waited <= wait + 2 * latency + 1e-6
    assert tried(port)[-1] - 1000 >= wait - latency - 1e-6


@given(delta=DELTAS, free_at=st.floats(min_value=0, max_value=19), seed=SEEDS)
def test_waiter_acquires_a_freed_lock_within_a_pause(
    delta: float, free_at: float, seed: int
) -> None:
    port = SimulatedPort(seed=seed)
    port.server.put(KEY, "another")
    port.clock.at(1000 + free_at, lambda: port.server.drop(KEY))

    refusal = attempt(port, new_claim("a", expire=60), 20 + 2 * delta, delta)

    assert refusal is None
    assert port.now() - 1000 - free_at <= 1.5 * delta + 2 * port.latency + 1e-6


def test_waiter_without_a_limit_waits_until_the_lock_is_free() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 86_400)

    refusal = attempt(port, new_claim("a"), wait=math.inf, delta=60)

    assert refusal is None
    assert 86_400 <= port.now() - 1000 < 86_400 + 91


def test_pauses_vary_around_delta() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another")

    attempt(port, new_claim("a"), wait=100, delta=0.1)

    pauses = port.pauses[:-1]  # the end of the wait shortens the last one
    assert min(pauses) >= 0.05
    assert max(pauses) <= 0.15
    assert max(pauses) - min(pauses) > 0.08
    assert sum(pauses) / len(pauses) == pytest.approx(0.1, rel=0.05)


def test_two_waiters_do_not_poll_in_step() -> None:
    ports = [SimulatedPort(seed=seed) for seed in (1, 2)]
    for port in ports:
        port.server.put(KEY, "another")

    for port in ports:
        attempt(port, new_claim("a"), wait=10, delta=0.1)

    here, there = (tried(port)[1:-1] for port in ports)
    together = [at for at in here if any(abs(at - other) < 0.001 for other in there)]
    assert len(together) < len(here) / 10
