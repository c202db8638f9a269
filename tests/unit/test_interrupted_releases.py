"""Exceptions from outside, such as KeyboardInterrupt, while a lock is released."""

from typing import Any

import pytest
from redis.exceptions import NoPermissionError
from support.faults import (
    interrupted,
    raising,
    refused,
    reply_lost,
    request_lost,
    slow,
)
from support.releases import FIRST, KEY, SECOND, Limit, every_method, new_port
from support.simulation import SimulatedPort, acquired, cluster_port, new_claim

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.owner_info import OwnerInfo
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import ReleaseMethod


@every_method
@pytest.mark.parametrize("reply_left", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), Limit(), TimeoutError()])
def test_lock_is_released_though_an_exception_interrupts_the_exchange(
    method: ReleaseMethod, reply_left: bool, error: BaseException
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [interrupted(error, reply_left=reply_left)]

    with pytest.raises(type(error)):
        run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())


@every_method
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), Limit(), TimeoutError("too slow")])
def test_exception_from_outside_at_the_end_of_a_block_is_raised(
    method: ReleaseMethod, failed: bool, error: BaseException
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [raising(error)]

    with pytest.raises(type(error)):
        run(leave(port, claim, method, failed=failed))

    assert port.server.value(KEY) is None
    assert port.held == {}


@pytest.mark.parametrize("fate", [refused, request_lost, reply_lost, raising(NoPermissionError())])
def test_interrupted_release_that_fails_is_a_warning(
    caplog: pytest.LogCaptureFixture, fate: Any
) -> None:
    for is_undone in (False, True):
        port = new_port()
        claim = acquired(port, "a")
        port.usual = fate
        caplog.clear()
        if is_undone:
            run(undo(port, claim, KeyboardInterrupt()))
        else:
            port.faults = [raising(KeyboardInterrupt())]
            with pytest.raises(KeyboardInterrupt):
                run(release(port, claim, "script"))

        assert "its repetition failed" in caplog.text
        assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_exception_from_outside_is_raised_after_a_failed_request() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [request_lost, refused, raising(Limit())]

    with pytest.raises(Limit):
        run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("place", [0, 1])
def test_exception_from_outside_is_raised_with_several_names(place: int) -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b")
    port.faults = [reply_lost, None]
    port.faults[place] = raising(Limit())

    with pytest.raises(Limit):
        run(release(port, claim, "script"))

    assert port.server.value(FIRST) is None
    assert port.server.value(SECOND) is None


def test_exception_from_outside_is_no_error_of_the_server() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [raising(Limit("unknown command"))]

    with pytest.raises(Limit):
        run(release(port, claim, "native"))

    assert port.server.value(KEY) is None


@every_method
def test_release_interrupted_before_its_record_can_be_repeated(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    run(release_keys(port, claim, method, port.now() + 1))  # then an exception from outside

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


@every_method
def test_lock_is_released_after_an_exception_before_the_sending(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [raising(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, method))

    assert port.server.value(KEY) is None


def stopped_server_without_scripts(port: SimulatedPort) -> None:
    """Stop the server for some seconds: it runs all requests when it goes on."""
    port.server.loaded.clear()
    port.usual = slow(20)


@pytest.mark.parametrize("may_resend", [False, True])
@pytest.mark.parametrize("reply_left", [False, True])
@pytest.mark.parametrize("owner_info", [False, True])
def test_interrupted_release_needs_no_script_at_a_server_that_stood_still(
    may_resend: bool, reply_left: bool, owner_info: bool
) -> None:
    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a", expire=60)
    if owner_info:
        claim.owner_info = OwnerInfo(0, "{}", "{}")
    stopped_server_without_scripts(port)
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=reply_left)]

    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, "script"))
    port.clock.advance(25)

    assert port.server.value(KEY) is None


def test_release_without_a_reply_needs_no_script_at_a_server_that_stood_still() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    stopped_server_without_scripts(port)
    port.faults = [request_lost]

    run(leave(port, claim, "script", failed=False))
    port.clock.advance(25)

    assert port.server.value(KEY) is None


def test_interrupted_acquisition_is_undone_at_a_server_that_stood_still() -> None:
    port = new_port()
    claim = new_claim("a", expire=60)
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    stopped_server_without_scripts(port)
    port.server.loaded.add(_lua.script("acquire").sha)

    with pytest.raises(KeyboardInterrupt):
        run(acquire(port, claim, 0, 0.005))
    port.clock.advance(25)

    assert port.server.value(KEY) is None


def test_interrupted_block_is_undone_at_a_server_that_stood_still() -> None:
    port = new_port()
    claim = acquired(port, "a", expire=60)
    stopped_server_without_scripts(port)

    run(undo(port, claim))
    port.clock.advance(25)

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("may_resend", [False, True])
def test_repeated_release_needs_no_right_to_send_the_text(may_resend: bool) -> None:
    def refuse_text(*command: object) -> None:
        raise NoPermissionError("this user has no permissions to run the 'eval' command")

    port = new_port(may_resend=may_resend)
    claim = acquired(port, "a", expire=60)
    port.server._handlers["EVAL"] = refuse_text
    port.faults = [request_lost]

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None
    assert {sent.command[0] for sent in port.log} == {"EVALSHA", "EVAL"}


def test_first_release_sends_no_text() -> None:
    port = new_port()

    run(release(port, acquired(port, "a"), "script"))

    assert [sent.command[0] for sent in port.log] == ["EVALSHA"]
