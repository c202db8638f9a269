"""Extension: counted from now, done once, never for a lost lease."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import (
    Request,
    delivered,
    paused,
    raising,
    reply_lost,
    request_lost,
    resent,
)
from support.releases import FIRST, KEY, SECOND
from support.simulation import (
    Clock,
    SimulatedPort,
    SimulatedServer,
    acquired,
    cluster_port,
    new_claim,
)

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError


def test_lease_is_extended_by_one_request() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)

    run(extend(port, claim, 30))

    assert port.verbs == ["extend"]
    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


def test_extension_is_not_additive() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)

    run(extend(port, claim, 10))
    run(extend(port, claim, 10))

    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)
    assert claim.deadline == pytest.approx(port.now() + 10 - 0.102, abs=0.01)


def test_deadline_counts_from_the_sending_of_the_request() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=5)
    port.latency = 3
    sent = port.now()

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_deadline_after_a_lost_reply_counts_from_the_last_request() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=5)
    port.latency = 0.5
    port.faults = [reply_lost, request_lost]

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(port.log[-1].at + 10 - 0.102)


@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lease_is_extended_once_though_a_message_is_lost(fate: Any) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)
    port.faults = [fate]

    run(extend(port, claim, 10))

    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)
    assert claim.is_live(port.now() + 9)


def test_client_that_decodes_replies_can_extend() -> None:
    port = SimulatedPort(text=True)
    claim = acquired(port, "a")

    run(extend(port, claim, 30))

    assert claim.is_live(port.now() + 29)


def test_script_that_the_server_lost_is_sent_again() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.loaded.clear()

    run(extend(port, claim, 30))

    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


def test_lease_is_lost_after_its_deadline_though_its_key_exists() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)
    port.clock.advance(9.95)
    assert claim.is_lost(port.now())

    with pytest.raises(LockLostError, match="its time ran out"):
        run(extend(port, claim, 10))

    assert claim.is_lost(port.now())
    assert port.log == []
    assert port.held == {}


@pytest.mark.parametrize("is_reported", [False, True])
def test_extension_answered_after_the_deadline_revives_no_lease(is_reported: bool) -> None:
    def reported_as_lost(request: Request) -> Any:
        reply = paused(2)(request)
        if is_reported:
            claim.lost_reason = "not renewed"
        return reply

    port = SimulatedPort()
    claim = acquired(port, "a", expire=1)
    port.faults = [reported_as_lost]

    with pytest.raises(LockLostError, match="not renewed" if is_reported else "its time ran out"):
        run(extend(port, claim, 60))

    assert claim.is_lost(port.now())
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None  # so other clients do not wait for its expiry
    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_lease_reported_as_lost_during_its_extension_remains_lost() -> None:
    class Reported(Claim):
        __slots__ = ()

        def prolong(self, sent: float, seconds: float) -> None:
            super().prolong(sent, seconds)
            self.lost_reason = "not renewed"

    port = SimulatedPort()
    claim = acquired(port, "a")
    claim.__class__ = Reported

    with pytest.raises(LockLostError, match="not renewed"):
        run(extend(port, claim, 60))


@pytest.mark.parametrize("is_run_first", [False, True])
def test_release_during_an_extension_is_no_loss(is_run_first: bool) -> None:
    def released_first(request: Request) -> Any:
        reply = request.execute() if is_run_first else None
        run(release(port, claim, "script"))
        return request.port.received(reply) if is_run_first else delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [released_first]

    with pytest.raises(LockNotOwnedError, match="released") as caught:
        run(extend(port, claim, 60))

    assert not isinstance(caught.value, LockLostError)
    assert claim.lost_reason is None
    assert not claim.is_lost(port.now())
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None


def test_longer_lease_is_not_shortened() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=60)
    deadline = claim.deadline

    run(extend(port, claim, 1))

    assert claim.deadline == deadline
    assert port.server.left(KEY) > 59


# Loss


def test_lost_lock_is_never_acquired_again() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(extend(port, claim, 10))

    assert port.server.value(KEY) is None
    assert not claim.is_live(port.now())
    assert claim.is_lost(port.now())


def test_lease_of_another_client_is_not_extended() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.put(KEY, "another-identifier", 5)

    with pytest.raises(LockLostError) as caught:
        run(extend(port, claim, 60))

    assert caught.value.holder == "another-…"
    assert port.server.left(KEY) < 5
    assert not claim.is_live(port.now())


def test_forked_child_extends_nothing() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError, match="parent process"):
        run(extend(port, claim, 60))

    assert port.log == []


def test_released_lease_is_not_extended_and_was_not_lost() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    run(release(port, claim, "script"))

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 60))

    assert not claim.is_live(port.now())
    assert not claim.is_lost(port.now())


def test_lease_whose_release_failed_is_not_extended() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)
    port.faults = [raising(KeyboardInterrupt()), request_lost]
    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, "script"))

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 600))

    assert port.server.left(KEY) <= 10


# Several keys


@pytest.mark.parametrize("cluster", [False, True])
def test_several_keys_are_extended(cluster: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = acquired(port, "a", "b")

    run(extend(port, claim, 30))

    assert port.server.left(FIRST) == pytest.approx(30, abs=0.01)
    assert port.server.left(SECOND) == pytest.approx(30, abs=0.01)


def test_deadline_of_several_slots_counts_from_the_first_request() -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b", expire=9)
    port.latency = 2
    sent = port.now()

    run(extend(port, claim, 10))

    assert claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_lost_key_leaves_the_other_keys_of_the_server_unchanged() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", "b", expire=5)
    port.server.drop(FIRST)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 60))

    assert port.server.left(SECOND) <= 5
    assert not claim.is_live(port.now())


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_keys_that_were_not_lost_can_still_be_released(cluster: bool, lost: bytes) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = acquired(port, "a", "b")
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
