"""Giving a lease more time: from now, once, and never to a lease that is lost."""

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError
from support.faults import (
    Request,
    delayed,
    delivered,
    interrupted,
    mismatched,
    paused,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim, taken

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import extend, holders
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.retries import OUTAGE, ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError

KEY = b"sys:lock:a"
#: Keys of two slots, in the order in which everybody takes them.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)


def cluster_port() -> SimulatedPort:
    return SimulatedPort(SimulatedServer(Clock(), cluster=True))


def test_lease_is_extended_by_one_request() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=10)

    run(extend(port, claim, 30))

    assert port.verbs == ["extend"]
    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


def test_extending_is_not_additive() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=10)

    run(extend(port, claim, 10))
    run(extend(port, claim, 10))

    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)
    assert claim.deadline == pytest.approx(port.now() + 10 - 0.102, abs=0.01)


def test_deadline_is_counted_from_the_sending() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=5)
    port.latency = 3
    sent = port.now()

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_deadline_after_a_lost_reply_is_counted_from_the_last_sending() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=5)
    port.latency = 0.5
    port.faults = [reply_lost, request_lost]

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(port.log[-1].at + 10 - 0.102)


@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lost_message_extends_once(fate: Any) -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=10)
    port.faults = [fate]

    run(extend(port, claim, 10))

    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)
    assert claim.is_live(port.now() + 9)


def test_client_that_decodes_replies_can_extend() -> None:
    port = SimulatedPort(text=True)
    claim = taken(port, "a")

    run(extend(port, claim, 30))

    assert claim.is_live(port.now() + 29)


def test_scripts_forgotten_by_the_server_are_sent_again() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.server.loaded.clear()

    run(extend(port, claim, 30))

    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


def test_lease_whose_deadline_passed_is_lost_though_its_key_is_there() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=10)
    port.clock.advance(9.95)
    assert claim.is_lost(port.now())

    with pytest.raises(LockLostError, match="its time ran out"):
        run(extend(port, claim, 10))

    assert claim.is_lost(port.now())
    assert port.log == []
    assert port.held == {}


@pytest.mark.parametrize("told", [False, True])
def test_extension_answered_after_the_deadline_brings_no_lease_back(told: bool) -> None:
    def told_lost_meanwhile(request: Request) -> Any:
        reply = paused(2)(request)
        if told:
            claim.lost_reason = "its keeper said so"
        return reply

    port = SimulatedPort()
    claim = taken(port, "a", expire=1)
    port.faults = [told_lost_meanwhile]

    with pytest.raises(LockLostError, match="its keeper said so" if told else "its time ran out"):
        run(extend(port, claim, 60))

    assert claim.is_lost(port.now())
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None  # nobody waits for the end of what nobody holds
    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_lease_told_lost_while_its_extension_was_believed_stays_lost() -> None:
    class Told(Claim):
        __slots__ = ()

        def prolong(self, sent: float, seconds: float) -> None:
            super().prolong(sent, seconds)
            self.lost_reason = "its keeper said so"

    port = SimulatedPort()
    claim = taken(port, "a")
    claim.__class__ = Told

    with pytest.raises(LockLostError, match="its keeper said so"):
        run(extend(port, claim, 60))


@pytest.mark.parametrize("is_run_first", [False, True])
def test_extension_overtaken_by_the_release_is_no_loss(is_run_first: bool) -> None:
    def released_meanwhile(request: Request) -> Any:
        reply = request.execute() if is_run_first else None
        run(release(port, claim, "script"))
        return request.port.received(reply) if is_run_first else delivered(request)

    port = SimulatedPort()
    claim = taken(port, "a")
    port.faults = [released_meanwhile]

    with pytest.raises(LockNotOwnedError, match="released") as caught:
        run(extend(port, claim, 60))

    assert not isinstance(caught.value, LockLostError)
    assert claim.lost_reason is None
    assert not claim.is_lost(port.now())
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None


def test_longer_lease_is_not_shortened() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=60)
    deadline = claim.deadline

    run(extend(port, claim, 1))

    assert claim.deadline == deadline
    assert port.server.left(KEY) > 59


# Loss


def test_lost_lock_is_never_acquired_again() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(extend(port, claim, 10))

    assert port.server.value(KEY) is None
    assert not claim.is_live(port.now())
    assert claim.is_lost(port.now())


def test_lease_of_another_is_not_extended() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.server.put(KEY, "another-identifier", 5)

    with pytest.raises(LockLostError) as caught:
        run(extend(port, claim, 60))

    assert caught.value.holder == "another-…"
    assert port.server.left(KEY) < 5
    assert not claim.is_live(port.now())


def test_forked_child_extends_nothing() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError, match="parent process"):
        run(extend(port, claim, 60))

    assert port.log == []


def test_released_lease_is_not_extended_and_was_not_lost() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    run(release(port, claim, "script"))

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 60))

    assert not claim.is_live(port.now())
    assert not claim.is_lost(port.now())


def test_lease_that_was_let_go_in_vain_is_not_kept_alive() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=10)
    port.faults = [raising(KeyboardInterrupt()), request_lost]
    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, "script"))

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 600))

    assert port.server.left(KEY) <= 10


# Unknown outcomes


def test_outage_raises_the_clients_own_error() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=60)
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        run(extend(port, claim, 120))

    assert OUTAGE - 1 < port.now() - 1000 < OUTAGE + 0.1


def test_black_hole_ends_the_extending_in_time() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=60)
    port.usual, port.patience = swallowed, math.inf

    with pytest.raises(Exception, match="no reply in time"):
        run(extend(port, claim, 120))

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP


@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_old_deadline_stands_after_an_extension_of_unknown_outcome(fate: Any) -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=60)
    port.usual = fate
    deadline = claim.deadline

    with pytest.raises(Disconnected):
        run(extend(port, claim, 120))

    assert claim.deadline == deadline
    assert claim.is_live(port.now())


@pytest.mark.parametrize(
    "fate",
    [reply_lost, interrupted(KeyboardInterrupt()), delayed(0.1)],
    ids=["reply lost", "interrupted", "delayed"],
)
def test_shorter_extension_of_unknown_outcome_leaves_what_is_believed_true(fate: Any) -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=60)
    port.usual = fate

    with pytest.raises((Disconnected, KeyboardInterrupt)):
        run(extend(port, claim, 2))
    port.clock.advance(3)

    assert not claim.is_live(port.now()) or port.server.value(KEY) == claim.identifier


@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_shorter_extension_of_some_slots_leaves_what_is_believed_true(lost: bytes) -> None:
    def one_node_down(request: Any) -> Any:
        return (request_lost if lost in request.command else resent)(request)

    port = cluster_port()
    claim = taken(port, "a", "b", expire=60)
    port.usual = one_node_down

    with pytest.raises(Disconnected):
        run(extend(port, claim, 2))
    port.clock.advance(3)

    held = {port.server.value(FIRST), port.server.value(SECOND)} == {claim.identifier}
    assert held or not claim.is_live(port.now())


def test_definite_error_is_raised_at_once_and_the_lease_stays() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.faults = [raising(NoPermissionError("this user has no permissions"))]

    with pytest.raises(NoPermissionError):
        run(extend(port, claim, 10))

    assert port.verbs == ["extend"]
    assert claim.is_live(port.now())


@pytest.mark.parametrize("reply", [None, b"OK", 1, b"another:1", [], [b"another:1", b""]], ids=repr)
def test_reply_to_another_command_is_not_believed(reply: Any) -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]

    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    assert port.distrusted == 1
    assert not claim.is_live(port.now())


def test_yes_to_an_earlier_extension_is_not_believed() -> None:
    port = SimulatedPort()
    claim = taken(port, "a")
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        run(extend(port, claim, 10))
    port.server.put(KEY, "another", 60)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    assert not claim.is_live(port.now())


# Requests that arrive when they are no longer expected


def test_acquisition_that_arrives_late_does_not_shorten_the_lease() -> None:
    port = SimulatedPort()
    claim = new_claim("a", expire=5)
    port.faults = [delayed(1)]
    run(acquire(port, claim, 10, 0.1))
    run(extend(port, claim, 60))

    port.clock.advance(10)

    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier


def test_extension_that_arrives_late_does_not_shorten_the_lease() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=5)
    port.faults = [delayed(1)]
    run(extend(port, claim, 5))
    run(extend(port, claim, 60))

    port.clock.advance(10)

    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier


# Several keys


@pytest.mark.parametrize("cluster", [False, True])
def test_several_keys_are_extended(cluster: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = taken(port, "a", "b")

    run(extend(port, claim, 30))

    assert port.server.left(FIRST) == pytest.approx(30, abs=0.01)
    assert port.server.left(SECOND) == pytest.approx(30, abs=0.01)


def test_deadline_over_several_slots_is_counted_from_the_first_sending() -> None:
    port = cluster_port()
    claim = taken(port, "a", "b", expire=9)
    port.latency = 2
    sent = port.now()

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_one_lost_key_of_a_server_leaves_the_others_as_they_were() -> None:
    port = SimulatedPort()
    claim = taken(port, "a", "b", expire=5)
    port.server.drop(FIRST)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 60))

    assert port.server.left(SECOND) <= 5
    assert not claim.is_live(port.now())


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_keys_that_were_not_lost_can_still_be_let_go(cluster: bool, lost: bytes) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = taken(port, "a", "b")
    port.server.drop(lost)
    with pytest.raises(LockLostError):
        run(extend(port, claim, 60))

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@given(
    expire=st.floats(min_value=0.01, max_value=100),
    extensions=st.lists(st.floats(min_value=0.01, max_value=100), max_size=5),
    latency=st.floats(min_value=0, max_value=1),
    pause=st.floats(min_value=0, max_value=100),
)
def test_live_lease_is_always_in_the_server(
    expire: float, extensions: list[float], latency: float, pause: float
) -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=expire)
    port.latency = latency
    run(acquire(port, claim, 0, 0.1))

    for seconds in extensions:
        if claim.is_live(port.now()):
            with contextlib.suppress(LockLostError):
                run(extend(port, claim, seconds))
    port.clock.advance(pause)

    assert not claim.is_live(port.now()) or port.server.value(KEY) == claim.identifier


# Asking who holds a lock


def test_holders_are_told_key_by_key() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "somebody")

    found = run(holders(port, (b"1", b"2")))

    assert found == ["somebody", None]


def test_holder_is_asked_for_again_after_a_lost_reply() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "somebody")
    port.faults = [reply_lost]

    found = run(holders(port, (b"1",)))

    assert found == ["somebody"]


def test_holder_that_is_no_utf8_is_told() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "\udcff")

    found = run(holders(port, (b"1",)))

    assert found == ["\udcff"]
