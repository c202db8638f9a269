"""Renewing many leases together: each has an outcome of its own."""

import math
from typing import Any

import pytest
from redis.exceptions import NoPermissionError
from support.faults import (
    Fate,
    Request,
    delivered,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
)
from support.renewing import ERRORS, KEY, held, renewed
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, cluster_port

from redis_lock_decorators._flow.renewal import batch as flow_renew
from redis_lock_decorators._flow.renewal.batch import MOST_KEYS, Renewal, renew
from redis_lock_decorators._flow.requests import OTHER_DATA, Refusal
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_errors import is_unknown
from redis_lock_decorators._rules.keys import slot_of


def test_lease_is_renewed_by_one_request() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.clock.advance(4)

    outcomes = renewed(port, claim)

    assert outcomes == [None]
    assert port.verbs == ["renew"]
    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)


def test_renewed_lost_and_unknown_are_three_outcomes_in_their_order() -> None:
    port = cluster_port()
    claims = held(port, 4)
    port.server.drop(claims[1].keys[0])
    port.server.put(claims[2].keys[0], "another-identifier", 60)
    sick = claims[3].keys[0]
    port.usual = lambda request: (request_lost if sick in request.command else resent)(request)

    outcomes = renewed(port, *claims)

    assert outcomes[:3] == [None, Refusal(None), Refusal("another-identifier")]
    assert isinstance(outcomes[3], Exception)
    assert is_unknown(outcomes[3])


def test_key_that_the_user_must_not_use_prevents_no_other_renewal() -> None:
    port = SimulatedPort()
    claims = held(port, 3)
    forbidden = NoPermissionError("no permissions to access one of the keys used as arguments")
    key = claims[1].keys[0]
    port.usual = lambda request: (raising(forbidden) if key in request.command else delivered)(
        request
    )

    outcomes = renewed(port, *claims)

    assert outcomes == [None, forbidden, None]


def test_each_lease_is_renewed_for_its_own_time() -> None:
    port = SimulatedPort()
    first, second = held(port, 2)

    run(renew(port, [Renewal(first, 20), Renewal(second, 0.5)], port.now() + 3))

    assert port.server.left(first.keys[0]) == pytest.approx(20, abs=0.01)
    assert port.server.left(second.keys[0]) == pytest.approx(10, abs=0.01), "never shortened"


def test_renewal_is_in_milliseconds_rounded_up() -> None:
    port = SimulatedPort()
    port.latency = 0
    claim = acquired(port, "a", expire=0.001)

    renewed(port, claim, seconds=0.0015)

    assert port.server.left(KEY) == pytest.approx(0.002)


def test_client_may_decode_replies() -> None:
    port = SimulatedPort(text=True)
    claims = held(port, 2)
    port.server.put(claims[1].keys[0], "another", 60)

    outcomes = renewed(port, *claims)

    assert outcomes == [None, Refusal("another")]


def test_holder_that_is_not_utf8_is_reported() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.put(KEY, "\udcff", 60)

    assert renewed(port, claim) == [Refusal("\udcff")]


def test_scripts_forgotten_by_the_server_are_sent_again() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.loaded.clear()

    outcomes = renewed(port, claim, seconds=30)

    assert outcomes == [None]
    assert [sent.command[0] for sent in port.log] == ["EVALSHA", "EVAL"]
    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


def test_script_that_is_sent_again_has_its_full_time_for_a_reply() -> None:
    """The first reply took most of the time, but shows that the server answers."""
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.loaded.clear()
    port.latency = 2.0  # of the 3 seconds that a renewal has here

    assert renewed(port, claim, seconds=30) == [None]


def test_silence_after_a_repeated_script_ends_the_request_in_time() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.loaded.clear()
    port.latency, port.faults = 2.0, [delivered, swallowed]
    before = port.now()

    (outcome,) = renewed(port, claim)

    assert isinstance(outcome, Exception)
    assert port.now() == pytest.approx(before + 2 + 3)


# Several keys of a lease


@pytest.mark.parametrize("cluster", [False, True])
def test_all_keys_of_a_lease_are_renewed(cluster: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = acquired(port, "a", "b", "c")

    outcomes = renewed(port, claim, seconds=30)

    assert outcomes == [None]
    assert all(port.server.left(key) > 29 for key in claim.keys)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_lease_is_lost_if_one_of_its_keys_is(cluster: bool, place: int) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    before, claim, after = acquired(port, "x"), acquired(port, "a", "b", "c"), acquired(port, "y")
    port.server.put(claim.keys[place], "another", 60)

    outcomes = renewed(port, before, claim, after)

    assert outcomes == [None, Refusal("another"), None]


@pytest.mark.parametrize(("lost", "sick"), [(0, 1), (1, 0)])
def test_lease_with_a_lost_and_an_unknown_key_is_lost(lost: int, sick: int) -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b")
    lost_key, sick_key = claim.keys[lost], claim.keys[sick]
    port.server.drop(lost_key)
    port.usual = lambda request: (request_lost if sick_key in request.command else resent)(request)

    assert renewed(port, claim) == [Refusal(None)]


@pytest.mark.parametrize("sick", [0, 1])
def test_lease_with_a_renewed_and_an_unknown_key_is_unknown(sick: int) -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b")
    sick_key = claim.keys[sick]
    port.usual = lambda request: (request_lost if sick_key in request.command else resent)(request)

    (outcome,) = renewed(port, claim)

    assert isinstance(outcome, Exception)


# Two leases of one key: one was lost, the other acquired the lock since


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("lost_first", [False, True])
def test_two_leases_of_one_key_have_an_outcome_each(cluster: bool, lost_first: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    lost = acquired(port, "a")
    port.server.drop(lost.keys[0])
    successor = acquired(port, "a", owner="another thread")
    claims = [lost, successor] if lost_first else [successor, lost]

    outcomes = renewed(port, *claims, seconds=30)

    expected = [Refusal(successor.identifier), None]
    assert outcomes == (expected if lost_first else expected[::-1])
    assert port.server.left(successor.keys[0]) == pytest.approx(30, abs=0.01)


def test_lease_without_a_request_does_not_count_as_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = SimulatedPort()
    claims = held(port, 3)
    all_parts = flow_renew._parts
    monkeypatch.setattr(
        flow_renew, "_parts", lambda *client_state: [*all_parts(*client_state)][0:0]
    )

    outcomes = renewed(port, *claims)

    assert [type(outcome) for outcome in outcomes] == [flow_renew.NotRequested] * 3


# Keys that are not locks


def test_key_of_another_type_is_lost_and_the_others_are_renewed() -> None:
    port = SimulatedPort()
    claims = held(port, 3)
    port.server._stored[claims[1].keys[0]] = ({"other": "data"}, math.inf)

    outcomes = renewed(port, *claims, seconds=30)

    assert outcomes == [None, Refusal(None, why=OTHER_DATA), None]
    assert port.server.left(claims[2].keys[0]) == pytest.approx(30, abs=0.01)


def test_hand_off_during_a_renewal_causes_no_reply_mismatch() -> None:
    port = SimulatedPort()
    claims = held(port, 2)

    def hand_off_first(request: Request) -> Any:
        claims[0].identifier = ""
        return delivered(request)

    port.usual = hand_off_first

    assert renewed(port, *claims) == [None, None]


# Many leases


@pytest.mark.parametrize(
    ("count", "requests"), [(MOST_KEYS, 1), (MOST_KEYS + 1, 2), (2 * MOST_KEYS + 1, 3)]
)
def test_number_of_keys_in_one_script_is_limited(count: int, requests: int) -> None:
    port = SimulatedPort()
    claims = held(port, count)
    port.log.clear()

    outcomes = renewed(port, *claims, seconds=30)

    assert outcomes == [None] * count
    assert len(port.log) == requests
    assert max(sent.command[2] for sent in port.log) == MOST_KEYS == 500
    assert all(port.server.left(claim.keys[0]) > 29 for claim in claims)


def test_loss_in_a_later_script_belongs_to_the_right_lease() -> None:
    port = SimulatedPort()
    claims = held(port, MOST_KEYS + 7)
    port.server.drop(claims[MOST_KEYS + 3].keys[0])

    outcomes = renewed(port, *claims)

    lost = [place for place, outcome in enumerate(outcomes) if outcome is not None]
    assert lost == [MOST_KEYS + 3]


def test_only_keys_of_one_slot_share_a_request_in_a_cluster() -> None:
    port = cluster_port()
    claims = [acquired(port, name) for name in ("{x}1", "a", "{x}2", "b")]
    port.log.clear()

    outcomes = renewed(port, *claims, seconds=30)

    assert outcomes == [None] * 4
    slots = [{slot_of(key) for key in sent.command[3 : 3 + sent.command[2]]} for sent in port.log]
    assert sorted(len(slot) for slot in slots) == [1, 1, 1]
    assert all(port.server.left(claim.keys[0]) > 29 for claim in claims)


@pytest.mark.parametrize("fate", [request_lost, reply_lost, *map(raising, ERRORS)])
def test_failing_node_does_not_prevent_renewals_at_others(fate: Fate) -> None:
    port = cluster_port()
    claims = held(port, 5)
    sick = claims.pop(2)
    sick_key = sick.keys[0]
    port.usual = lambda request: (fate if sick_key in request.command else resent)(request)

    outcomes = renewed(port, sick, *claims, seconds=30)

    assert isinstance(outcomes[0], Exception)
    assert outcomes[1:] == [None] * 4
    assert all(port.server.left(claim.keys[0]) > 29 for claim in claims)
