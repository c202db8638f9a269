"""Releases without a reply: repeated, and not mistaken for a loss."""

from typing import Any

import pytest
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as Disconnected
from support.faults import (
    Request,
    delivered,
    mismatched,
    raising,
    refused,
    reply_lost,
    request_lost,
    resent,
    unsent,
)
from support.releases import FIRST, KEY, SECOND, every_method, new_port
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, cluster_port

from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError

#: Error replies of servers that may run the request if it is repeated a moment later.
NOT_RUN = [
    ReadOnlyError("READONLY You can't write against a read only replica."),
    BusyLoadingError("LOADING Redis is loading the dataset in memory"),
    MasterDownError("MASTERDOWN Link with MASTER is down"),
    ClusterDownError("CLUSTERDOWN The cluster is down"),
    ResponseError("NOREPLICAS Not enough good replicas to write."),
    ResponseError("BUSY Redis is busy running a script."),
]

# Requests that were sent


@every_method
@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_release_is_repeated_after_a_lost_message(method: ReleaseMethod, fate: Any) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [fate] if method != "transaction" else [None, fate]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


@every_method
def test_deletion_that_the_client_repeated_is_no_loss(method: ReleaseMethod) -> None:
    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    port.faults = [resent] if method != "transaction" else [None, reply_lost]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
@pytest.mark.parametrize("may_resend", [False, True])
@pytest.mark.parametrize("is_run", [False, True])
def test_lock_of_another_after_an_unanswered_release_may_be_a_loss(
    method: ReleaseMethod, may_resend: bool, is_run: bool
) -> None:
    def no_reply_and_lock_acquired(request: Request) -> Any:
        if is_run:
            request.execute()
        port.server.put(KEY, "another", 60)
        return request_lost(request)

    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a")
    fate = no_reply_and_lock_acquired
    port.faults = [fate] if method != "transaction" else [None, fate]

    # A script records each release, so what it has not recorded was not done.
    is_known = may_resend and method != "transaction"
    if is_known and is_run:
        run(release(port, claim, method))
    else:
        with pytest.raises(LockLostError) as loss:
            run(release(port, claim, method))
        assert ("whether it was released before is not known" in str(loss.value)) is not is_known

    assert port.server.value(KEY) == "another"
    assert claim.is_lost(port.now()) is not (is_known and is_run)


# Requests that were not sent


@every_method
@pytest.mark.parametrize("fate", [refused, unsent])
@pytest.mark.parametrize("holder", [None, "another"])
def test_request_that_was_not_sent_does_not_explain_a_missing_key(
    method: ReleaseMethod, fate: Any, holder: str | None
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    if holder is None:
        port.server.drop(KEY)
    else:
        port.server.put(KEY, holder, 60)
    port.faults = [fate, fate]

    with pytest.raises(LockLostError):
        run(release(port, claim, method))

    assert claim.is_lost(port.now())
    assert port.server.value(KEY) == holder


@every_method
def test_only_requests_that_were_sent_explain_a_missing_key(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.usual = refused
    for _ in range(2):
        with pytest.raises(Disconnected, match="refused"):
            run(release(port, claim, method))
    port.usual = delivered
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


@every_method
def test_one_sent_request_explains_a_missing_key(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    fates: list[Any] = [reply_lost, refused, refused]
    port.faults = fates if method != "transaction" else [None, *fates]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


def test_unknown_outcome_is_raised_rather_than_a_refused_connection() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.faults, port.usual = [request_lost], refused

    with pytest.raises(Disconnected, match="the request was lost"):
        run(release(port, claim, "script"))


def test_refused_release_does_not_explain_a_missing_key() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    port.usual = raising(NoPermissionError("this user has no permissions"))
    with pytest.raises(NoPermissionError):
        run(release(port, claim, "script"))
    port.usual = delivered
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


def test_server_without_the_script_did_not_run_the_release_before() -> None:
    def restarted(request: Request) -> Any:
        port.server.flush()
        port.server.loaded.clear()
        return request_lost(request)

    port = new_port()
    claim = acquired(port, "a")
    port.faults = [restarted]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@every_method
@pytest.mark.parametrize("answer", NOT_RUN, ids=lambda answer: str(answer).split()[0])
@pytest.mark.parametrize("may_resend", [False, True])
def test_reply_that_nothing_was_run_does_not_explain_a_missing_key(
    method: ReleaseMethod, answer: Exception, may_resend: bool
) -> None:
    def answered_by_a_server_that_lost_the_lock(request: Request) -> Any:
        port.server.drop(KEY)
        return raising(answer)(request)

    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a", expire=60)
    fate = answered_by_a_server_that_lost_the_lock
    port.faults = [fate] if method != "transaction" else [None, fate]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


@pytest.mark.parametrize("answer", NOT_RUN, ids=lambda answer: str(answer).split()[0])
def test_native_release_whose_second_command_is_not_run_is_no_loss(answer: Exception) -> None:
    def second_is_not_run(request: Request) -> Any:
        replies = request.execute()
        replies[1] = answer
        return request.port.received(replies)

    port = new_port()
    claim = acquired(port, "a")
    port.faults = [second_is_not_run]

    run(release(port, claim, "native"))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


# Clients that repeat requests on their own


@pytest.mark.parametrize("method", ["script", "native"])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_release_without_reply_or_record_explains_no_missing_key(
    method: ReleaseMethod, names: list[str]
) -> None:
    def lost_with_the_master(request: Request) -> Any:
        port.server.drop(KEY)
        return request_lost(request)

    port = new_port(may_resend=True)
    claim = acquired(port, *names)
    port.faults = [lost_with_the_master]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


@every_method
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
@pytest.mark.parametrize("is_taken", [False, True])
def test_client_that_repeats_reports_a_key_deleted_by_others(
    method: ReleaseMethod, names: list[str], is_taken: bool
) -> None:
    port = new_port(may_resend=True)
    claim = acquired(port, *names)
    port.server.drop(KEY)
    if is_taken:
        other = SimulatedPort(port.server)
        run(release(other, acquired(other, "a"), "script"))

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


def test_client_that_repeats_requests_checks_each_slot_on_its_own() -> None:
    port = cluster_port()
    port.may_resend = True
    port.usual = resent
    claim = acquired(port, "a", "b")

    run(release(port, claim, "script"))

    port.usual = delivered
    claim = acquired(port, "a", "b")
    port.server.drop(SECOND)
    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@pytest.mark.parametrize("seconds", [0.5, 2])
def test_repeated_release_after_min_hold_is_no_loss(seconds: float) -> None:
    def again_when_it_is_over(request: Request) -> Any:
        request.execute()
        port.clock.advance(2 * seconds)
        return delivered(request)

    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    claim.held_until = port.now() + seconds
    port.faults = [again_when_it_is_over]

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


def test_record_of_a_release_is_made_only_for_clients_that_repeat() -> None:
    port, plain = new_port(may_resend=True), new_port()
    for one in (port, plain):
        run(release(one, acquired(one, "a"), "script"))

    *_, released = with_notes((KEY,))
    assert 0 < port.server.left(released) <= 30
    assert plain.server.left(released) == 0


@every_method
def test_reply_to_another_command_is_no_sign_of_a_loss(method: ReleaseMethod) -> None:
    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    port.faults = [mismatched(b"OK")]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("method", ["transaction", "native"])
def test_missing_key_is_not_reported_as_lost_if_scripts_are_forbidden(method: Any) -> None:
    def without_scripts(request: Request) -> Any:
        if request.command[0].startswith("EVAL"):
            return raising(NoPermissionError("this user has no permissions"))(request)
        return delivered(request)

    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    port.server.drop(KEY)
    port.usual = without_scripts

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


# Several keys


def test_released_part_is_not_repeated_with_another_part() -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b")
    port.faults = [None, refused]

    run(release(port, claim, "script"))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None
    assert port.verbs == ["release"] * 3


@pytest.mark.parametrize("method", ["script", "native"])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_part_for_which_no_request_was_lost_is_reported_as_lost(
    method: ReleaseMethod, lost: bytes
) -> None:
    def cut_off_from_the_other(request: Request) -> Any:
        if lost in request.command[:5] or request.command[0] == "EXISTS":
            return delivered(request)
        port.usual = delivered
        return reply_lost(request)

    port = SimulatedPort(SimulatedServer(Clock(), cluster=True, natives=["DELIFEQ"]))
    claim = acquired(port, "a", "b")
    port.server.drop(lost)
    port.usual = cut_off_from_the_other

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("holder", [None, "another"])
def test_placeholder_of_one_key_does_not_explain_the_loss_of_another(
    seconds: float, lost: int, holder: str | None
) -> None:
    port = new_port()
    claim = acquired(port, "a", "b", expire=60)
    claim.held_until = port.now() + seconds  # the next release has a placeholder or not
    for number, key in enumerate(claim.keys):
        value = f"{claim.identifier}:rest" if number != lost else holder
        port.server.drop(key) if value is None else port.server.put(key, value, 60)

    with pytest.raises(LockLostError, match="holds it" if holder else "gone"):
        run(release(port, claim, "script"))


def test_every_key_that_is_gone_needs_an_explanation() -> None:
    port = new_port()
    claim = acquired(port, "a", "b", "c", expire=60)
    claim.maybe_released = claim.keys[:1]
    for key in claim.keys[:2]:
        port.server.drop(key)

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))

    assert port.server.value(claim.keys[2]) is None
