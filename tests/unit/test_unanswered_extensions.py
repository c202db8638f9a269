"""Extensions without a reply, with a wrong one, or with a late one."""

import math
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError
from support.faults import (
    delayed,
    interrupted,
    mismatched,
    raising,
    reply_lost,
    request_lost,
    resent,
    swallowed,
)
from support.releases import FIRST, KEY, SECOND
from support.simulation import SimulatedPort, acquired, cluster_port, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError


def test_outage_raises_the_error_of_the_client() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=60)
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        run(extend(port, claim, 120))

    assert OUTAGE - 1 < port.now() - 1000 < OUTAGE + 0.1


def test_extension_ends_in_time_if_no_reply_arrives() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=60)
    port.usual, port.patience = swallowed, math.inf

    with pytest.raises(Exception, match="no reply in time"):
        run(extend(port, claim, 120))

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP


@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_deadline_is_unchanged_after_an_extension_of_unknown_outcome(fate: Any) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=60)
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
def test_unknown_shorter_extension_keeps_the_lease_in_the_server(fate: Any) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=60)
    port.usual = fate

    with pytest.raises((Disconnected, KeyboardInterrupt)):
        run(extend(port, claim, 2))
    port.clock.advance(3)

    assert not claim.is_live(port.now()) or port.server.value(KEY) == claim.identifier


@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_partial_shorter_extension_keeps_the_lease_in_the_server(lost: bytes) -> None:
    def one_node_down(request: Any) -> Any:
        return (request_lost if lost in request.command else resent)(request)

    port = cluster_port()
    claim = acquired(port, "a", "b", expire=60)
    port.usual = one_node_down

    with pytest.raises(Disconnected):
        run(extend(port, claim, 2))
    port.clock.advance(3)

    held = {port.server.value(FIRST), port.server.value(SECOND)} == {claim.identifier}
    assert held or not claim.is_live(port.now())


def test_definite_error_is_raised_immediately_and_the_lease_remains() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [raising(NoPermissionError("this user has no permissions"))]

    with pytest.raises(NoPermissionError):
        run(extend(port, claim, 10))

    assert port.verbs == ["extend"]
    assert claim.is_live(port.now())


@pytest.mark.parametrize("reply", [None, b"OK", 1, b"another:1", [], [b"another:1", b""]], ids=repr)
def test_reply_to_another_command_is_rejected(reply: Any) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]

    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    assert port.idle_drops == 1
    assert not claim.is_live(port.now())


def test_reply_to_an_earlier_extension_is_rejected() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        run(extend(port, claim, 10))
    port.server.put(KEY, "another", 60)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    assert not claim.is_live(port.now())


# Requests that arrive late


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
    claim = acquired(port, "a", expire=5)
    port.faults = [delayed(1)]
    run(extend(port, claim, 5))
    run(extend(port, claim, 60))

    port.clock.advance(10)

    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier
