"""Release: by each method, only keys that hold the own identifier."""

from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError
from support.faults import (
    Request,
    delivered,
    mismatched,
    raising,
    refused,
    reply_lost,
    request_lost,
    resent,
    swallowed,
)
from support.releases import FIRST, KEY, SECOND, every_method, new_port
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, cluster_port

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError

# Outcomes


@every_method
def test_held_lock_is_deleted(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize(
    ("method", "verbs"),
    [
        ("script", ["release"]),
        ("transaction", ["WATCH", "EXEC"]),
        ("native", ["DELIFEQ", "EXISTS"]),  # in one round trip
    ],
)
def test_release_sends_only_the_commands_of_its_method(
    method: ReleaseMethod, verbs: list[str]
) -> None:
    port = new_port()
    claim = acquired(port, "a")

    run(release(port, claim, method))

    assert port.verbs == verbs


@every_method
def test_key_that_is_gone_means_lost(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone") as caught:
        run(release(port, claim, method))

    assert caught.value.holder is None
    assert claim.is_lost(port.now())
    assert port.held == {}


@every_method
def test_key_of_another_client_means_lost_and_remains(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.put(KEY, "another-identifier", 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, method))

    assert caught.value.holder == "another-…"
    assert port.server.value(KEY) == "another-identifier"
    assert port.server.deleted == []


@every_method
def test_lease_is_lost_if_its_release_begins_after_its_deadline(method: ReleaseMethod) -> None:
    """A late copy of the acquisition's request may have set the key again."""
    port = new_port()
    claim = acquired(port, "a", expire=10)
    claim.lease_ref = lambda: claim
    port.clock.advance(9.95)

    with pytest.raises(LockLostError, match="its time ran out"):
        run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert claim.state is ENDED
    assert port.held == {}


@every_method
def test_release_of_an_expired_token_whose_key_exists_is_silent(method: ReleaseMethod) -> None:
    """Functions and drop-ins have no lease: as redis-py's locks, they ask only for the key."""
    port = new_port()
    claim = acquired(port, "a", expire=10)
    port.clock.advance(9.95)

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert claim.lost_reason is None


@every_method
def test_release_that_failed_before_the_deadline_is_no_loss_after_it(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=10)
    claim.lease_ref = lambda: claim
    port.usual = refused
    with pytest.raises(Disconnected):
        run(release(port, claim, method))
    port.usual = delivered
    port.clock.advance(claim.deadline - port.now() + 0.01)

    run(release(port, claim, method))

    assert claim.lost_reason is None
    assert port.server.value(KEY) is None


@every_method
def test_client_that_decodes_replies_can_release(method: ReleaseMethod) -> None:
    port = new_port(text=True)
    claim = acquired(port, "a")

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
def test_second_release_does_nothing(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    run(release(port, claim, method))
    port.server.put(KEY, "another", 60)
    port.log.clear()

    run(release(port, claim, method))

    assert port.log == []


@every_method
def test_forked_child_releases_nothing(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError, match="parent process"):
        run(release(port, claim, method))

    assert port.log == []
    assert port.server.value(KEY) == claim.identifier


def test_script_that_the_server_lost_is_sent_again() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.loaded.clear()

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


# Failures


def test_key_gone_at_a_repeated_release_after_the_deadline_means_lost() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=1)
    port.clock.advance(1.5)
    port.faults = [request_lost]

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


@every_method
def test_outage_raises_the_client_error_and_leaves_the_claim_open(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        run(release(port, claim, method))

    assert OUTAGE - 1 < port.now() - 1000 < OUTAGE + 0.1
    assert claim.state is not ENDED


def test_release_is_not_repeated_after_the_deadline() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=2)
    port.usual = request_lost

    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))

    assert port.now() < claim.deadline + 0.1


@pytest.mark.parametrize("expire", [2, 600])
def test_release_ends_in_time_if_no_reply_arrives(expire: float) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=expire)
    port.usual, port.patience = swallowed, 1e9

    with pytest.raises(Exception, match="no reply in time"):
        run(release(port, claim, "script"))

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP


@every_method
@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_release_of_unknown_outcome_can_be_repeated(method: ReleaseMethod, fate: Any) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.faults = [fate] if method != "transaction" else [None, fate]
    port.usual = request_lost
    with pytest.raises(Disconnected):
        run(release(port, claim, method))
    port.usual = delivered

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_lease_whose_release_failed_is_no_longer_live(fate: Any) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.usual = fate
    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))
    port.usual = delivered

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 60))

    assert not claim.is_live(port.now())


def test_release_of_an_expired_lease_does_not_touch_the_next_one() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=1)
    port.clock.advance(2)
    successor = acquired(port, "a", owner="another thread")

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert port.held == {KEY: successor}
    assert port.server.value(KEY) == successor.identifier


@every_method
@pytest.mark.parametrize("why", ["", "somebody deleted it"])
def test_lost_lease_is_lost_also_if_its_server_cannot_be_reached(
    method: ReleaseMethod, why: str
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=3)
    claim.lost_reason = why or None
    port.clock.advance(0 if why else 4)
    port.usual = refused

    with pytest.raises(LockLostError, match=why or "its time ran out") as caught:
        run(release(port, claim, method))

    assert isinstance(caught.value.__cause__, Disconnected)
    assert claim.state is ENDED
    assert port.held == {}


@every_method
def test_release_that_may_have_been_made_in_time_is_unknown_after_the_deadline(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=3)
    port.usual = refused
    for seconds in (0, 4):
        port.clock.advance(seconds)
        with pytest.raises(Disconnected):
            run(release(port, claim, method))

    assert claim.state is not ENDED
    assert claim.lost_reason is None


def test_reported_loss_is_raised_again_whatever_the_release_finds() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)
    with pytest.raises(LockLostError):
        run(extend(port, claim, 60))
    port.faults = [reply_lost]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@every_method
def test_definite_error_is_raised_and_leaves_the_claim_open(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [raising(ResponseError("ERR no such thing"))]

    with pytest.raises(ResponseError, match="no such thing"):
        run(release(port, claim, method))

    assert len(port.log) == (2 if method == "native" else 1)
    assert claim.state is not ENDED


@pytest.mark.parametrize("reply", [None, b"OK", 1, b"another:1", [], [b"another:1", b""]], ids=repr)
def test_reply_to_another_command_is_rejected(reply: Any) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [mismatched(reply)]

    run(release(port, claim, "script"))

    assert port.idle_drops == 1
    assert set(port.verbs) == {"release"}
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("reply", [b"OK", b"", None, [], 7], ids=repr)
def test_native_release_accepts_no_reply_but_0_and_1(reply: Any) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [mismatched(reply)]

    run(release(port, claim, "native"))

    assert port.server.value(KEY) is None


# Several keys


@every_method
def test_several_keys_are_deleted(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a", "b")

    run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("method", ["script", "native"])
def test_keys_of_several_slots_are_deleted(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True, natives=["DELEX"]))
    claim = acquired(port, "a", "b")

    run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
@pytest.mark.parametrize("holder", [None, "another"])
def test_loss_of_one_key_is_reported_and_the_other_released(
    cluster: bool, lost: bytes, holder: str | None
) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = acquired(port, "a", "b")
    (kept,) = {FIRST, SECOND} - {lost}
    if holder is None:
        port.server.drop(lost)
    else:
        port.server.put(lost, holder, 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == (None if holder is None else "ano…")
    assert port.server.value(kept) is None
    assert port.server.value(lost) == holder


def test_holder_of_a_lost_key_is_reported_after_a_partial_release() -> None:
    port = cluster_port()
    port.may_resend = True
    claim = acquired(port, "a", "b")
    port.server.put(FIRST, "another", 60)
    port.faults = [None, resent]

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == "ano…"


def test_holder_of_a_lost_key_is_reported_though_another_is_gone() -> None:
    port = SimulatedPort(may_resend=True)
    claim = acquired(port, "a", "b")
    port.server.drop(b"sys:lock:a")
    port.server.put(b"sys:lock:b", "another", 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == "ano…"


def test_failure_of_one_node_does_not_keep_the_keys_of_another() -> None:
    def one_node_down(request: Request) -> Any:
        return (request_lost if FIRST in request.command else delivered)(request)

    port = cluster_port()
    claim = acquired(port, "a", "b")
    port.usual = one_node_down

    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))

    assert port.server.value(SECOND) is None
