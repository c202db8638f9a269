"""Renewing many leases together: renewed, lost and unknown remain three outcomes."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from support.faults import (
    Fate,
    Request,
    delayed,
    delivered,
    interrupted,
    mismatched,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
    timed_out,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, cluster_port

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.renewal import batch as flow_renew
from redis_lock_decorators._flow.renewal.batch import MOST_KEYS, Outcome, Renewal, renew
from redis_lock_decorators._flow.requests import OTHER_DATA, Refusal, ReplyMismatch
from redis_lock_decorators._flow.timeouts import Until, end_of
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_errors import is_unknown
from redis_lock_decorators._rules.keys import slot_of

KEY = b"sys:lock:a"
ERRORS = [
    ResponseError("BUSY Redis is busy running a script."),
    BusyLoadingError("Redis is loading the dataset in memory"),
    ReadOnlyError("You can't write against a read only replica."),
    MasterDownError("Link with MASTER is down"),
    TryAgainError("Multiple keys request during rehashing of slot"),
    ClusterDownError("The cluster is down"),
    AskError("3999 127.0.0.1:6381"),
    NoPermissionError("this user has no permissions"),
    ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
    OSError("no route"),
]


def renewed(port: SimulatedPort, *claims: Claim, seconds: float = 10) -> list[Outcome]:
    """The outcomes of renewing claims for so many seconds."""
    renewals = [Renewal(claim, seconds) for claim in claims]
    return run(renew(port, renewals, port.now() + 3))


def held(port: SimulatedPort, count: int, expire: float = 10) -> list[Claim]:
    return [
        acquired(port, f"lock {number}", expire=expire, owner=number) for number in range(count)
    ]


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

    def passing_on(request: Request) -> Any:
        claims[0].identifier = ""
        return delivered(request)

    port.usual = passing_on

    assert renewed(port, *claims) == [None, None]


# Many leases


@pytest.mark.parametrize(
    ("count", "requests"), [(MOST_KEYS, 1), (MOST_KEYS + 1, 2), (2 * MOST_KEYS + 1, 3)]
)
def test_one_script_renews_at_most_so_many_keys(count: int, requests: int) -> None:
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

    outcomes = run(renew(port, [Renewal(claim, 10)], Until(now + 1, now + 3)))

    assert outcomes == [None]
    assert sent == [("EVALSHA", now + 3), ("EVAL", now + 3)]
