"""Transactions and native commands: the lock is deleted once, and granted to its waiters."""

import math
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError, ResponseError
from support.faults import (
    Request,
    delivered,
    raising,
    refused,
    reply_lost,
    request_lost,
    resent,
)
from support.releases import KEY, new_port
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, cluster_port

from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, LockLostError, LockNotOwnedError

# Servers that have become replicas


@pytest.mark.parametrize("found", [None, b"another"])
def test_transaction_does_not_trust_a_replica(found: bytes | None) -> None:
    def stale(request: Request) -> Any:
        return request.port.received(found)

    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.faults = [stale, raising(ReadOnlyError("You can't write against a read only replica."))]

    run(release(port, claim, "transaction"))

    assert port.verbs == ["WATCH", "EXEC"] * 2
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("holder", [None, "", "another"])
@pytest.mark.parametrize("fate", [delivered, reply_lost])
def test_transaction_that_finds_no_lock_of_ours_changes_nothing(
    holder: str | None, fate: Any
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.server.drop(KEY)
    if holder is not None:
        port.server.put(KEY, holder, 30)
    port.faults = [None, fate]

    with pytest.raises(LockLostError):
        run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == holder
    assert claim.maybe_released == ()


@pytest.mark.parametrize(
    "lacking",
    ["OOM command not allowed", "NOPERM no permissions", "WRONGTYPE the records are a string"],
)
def test_transaction_needs_no_write_to_report_a_loss(lacking: str) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.server.put(KEY, "another", 30)
    port.faults = [None, raising(ResponseError(lacking))]

    with pytest.raises(LockLostError, match="holds it"):
        run(release(port, claim, "transaction"))

    assert port.verbs == ["WATCH", "EXEC"]


@pytest.mark.parametrize("fate", [reply_lost, request_lost, refused])
def test_refused_native_release_explains_no_missing_key(fate: Any) -> None:
    """Its answer shows that it deleted nothing, though the request after it fails."""
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.server._stored.pop(KEY)
    port.faults = [None, fate]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "native"))

    assert port.verbs[:3] == ["DELIFEQ", "EXISTS", "GET"]


# Waiters


@pytest.mark.parametrize("method", ["transaction", "native"])
@pytest.mark.parametrize("may_resend", [False, True])
def test_lock_deleted_without_a_reply_is_granted_to_the_next_waiter(
    method: ReleaseMethod, may_resend: bool
) -> None:
    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a", expire=60)
    fate = resent if may_resend and method == "native" else reply_lost
    port.faults = [fate] if method == "native" else [None, fate]

    run(release(port, claim, method))

    by_script = may_resend and method == "native"  # which grants it
    assert port.verbs[-1] == ("release" if by_script else "recheck")
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("method", ["transaction", "native"])
@pytest.mark.parametrize("fate", [reply_lost, request_lost, refused])
@pytest.mark.parametrize("times", [1, 3])
def test_deleted_lock_is_granted_though_the_first_request_fails(
    method: ReleaseMethod, fate: Any, times: int
) -> None:
    def with_waiters(request: Request) -> Any:
        port.faults = [fate] * times
        return delivered(request)

    port = new_port()
    claim = acquired(port, "a", expire=60)
    queue = with_queue((KEY,))[1]
    place = f"a-channel|{claim.identifier}x|2500"
    port.server._stored[queue] = ({place: 1}, math.inf)
    port.server.subscribers["a-channel"] = [lambda word: None]
    port.faults = [with_waiters] if method == "native" else [None, with_waiters]

    run(release(port, claim, method))

    assert port.verbs.count("recheck") == times + 1
    assert port.server.value(KEY) == f"{claim.identifier}x"
    assert port.now() < 1000 + ROUND_TRIP


@pytest.mark.parametrize("method", ["transaction", "native"])
def test_release_does_not_wait_for_a_server_lost_before_the_grant(
    method: ReleaseMethod,
) -> None:
    def with_waiters(request: Request) -> Any:
        port.usual = refused
        return delivered(request)

    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.server._stored[with_queue((KEY,))[1]] = ({f"x|{claim.identifier}x|2500": 1}, math.inf)
    port.faults = [with_waiters] if method == "native" else [None, with_waiters]

    run(release(port, claim, method))

    assert port.now() < 1000 + ROUND_TRIP + 0.1


# min_hold


def test_transaction_under_min_hold_is_done_once() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    claim.held_until = port.now() + 5
    port.faults = [None, reply_lost]

    run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == f"{claim.identifier}:rest"
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("may_resend", [False, True])
def test_waiters_are_notified_of_min_hold_despite_a_lost_reply(
    may_resend: bool,
) -> None:
    heard: list[str] = []
    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a", expire=60)
    claim.held_until = port.now() + 5
    port.server._stored[with_queue((KEY,))[1]] = ({"a-channel|waiter|2500": 1}, math.inf)
    port.server.subscribers["a-channel"] = [heard.append]
    port.faults = [None, reply_lost]

    run(release(port, claim, "transaction"))

    assert [word.partition("|")[0] for word in heard] == ["again"]
    assert port.server.value(KEY) == f"{claim.identifier}:rest"


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
@pytest.mark.parametrize("method", ["script", "transaction"])
def test_min_hold_that_ends_later_than_needed_is_no_loss(
    method: ReleaseMethod, names: list[str]
) -> None:
    def slow(request: Request) -> Any:
        port.clock.advance(3)  # the server counts min_hold from here
        return reply_lost(request)

    port = new_port() if method == "transaction" else cluster_port()
    claim = acquired(port, *names, expire=60)
    claim.held_until = port.now() + 2
    port.faults = [slow] if method == "script" else [None, slow]

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


# Transactions


def test_transaction_is_repeated_if_the_key_changed() -> None:
    def extended_by_another_thread(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 60)
        return delivered(request)

    port = new_port()
    claim = acquired(port, "a")
    port.faults = [None, extended_by_another_thread]

    run(release(port, claim, "transaction"))

    assert port.verbs == ["WATCH", "EXEC"] * 2
    assert port.server.value(KEY) is None


def test_transaction_does_not_delete_a_key_acquired_in_between() -> None:
    def acquired_by_another(request: Request) -> Any:
        port.server.put(KEY, "another", 60)
        return delivered(request)

    port = new_port()
    claim = acquired(port, "a")
    port.faults = [None, acquired_by_another]

    with pytest.raises(LockLostError):
        run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == "another"


def test_transaction_that_never_succeeds_ends() -> None:
    def changed(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 60)
        return delivered(request)

    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.latency, port.usual = 0.1, changed

    with pytest.raises(LockNotOwnedError, match="changes faster"):
        run(release(port, claim, "transaction"))

    assert port.now() - 1000 < OUTAGE + 1


def test_cluster_has_no_transactions() -> None:
    port = cluster_port()
    claim = acquired(port, "a")

    with pytest.raises(ConfigurationError, match="method='script'"):
        run(release(port, claim, "transaction"))

    assert port.log == []


# Native commands


def test_native_release_uses_the_command_that_the_server_has() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELEX"]))
    claim = acquired(port, "a")

    run(release(port, claim, "native"))

    assert port.verbs == ["DELIFEQ", "EXISTS", "DELEX", "EXISTS"]
    assert port.server.value(KEY) is None
