"""The end of a block: failures are reported, but never hide the result."""

import contextlib
import logging
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError
from support.faults import (
    Request,
    delivered,
    raising,
    refused,
    request_lost,
)
from support.releases import (
    KEY,
    Limit,
    new_port,
)
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError


@pytest.mark.parametrize("failed", [False, True])
def test_block_whose_server_was_restarted_reports_the_loss_at_its_end(failed: bool) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.flush()
    port.faults = [refused]

    if failed:
        run(leave(port, claim, "script", failed))
    else:
        with pytest.raises(LockLostError):
            run(leave(port, claim, "script", failed))
    assert claim.is_lost(port.now())


@pytest.mark.parametrize("failed", [False, True])
def test_block_reports_a_loss_though_other_code_has_released_the_lease(failed: bool) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.flush()
    with pytest.raises(LockLostError) as found:
        run(release(port, claim, "script"))

    if failed:
        run(leave(port, claim, "script", failed))
    else:
        with pytest.raises(LockLostError) as reported:
            run(leave(port, claim, "script", failed))
        assert str(reported.value) == str(found.value)


def test_block_that_lost_its_lease_reports_it_at_its_end() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.put(KEY, "another", 60)

    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_loss_found_by_an_extension_is_reported_at_the_block_end() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)
    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_loss_does_not_replace_the_exception_of_the_block(caplog: pytest.LogCaptureFixture) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    with caplog.at_level(logging.WARNING):
        run(leave(port, claim, "script", failed=True))

    assert "ended before the work did" in caplog.text


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize(
    "error", [Disconnected("the server is away"), ResponseError("OOM command not allowed")]
)
def test_failed_release_at_the_end_of_a_block_is_logged(
    failed: bool, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.usual = raising(error)

    with caplog.at_level(logging.WARNING):
        run(leave(port, claim, "script", failed=failed))

    assert str(error) in caplog.text
    assert "lock 'a' could not be released" in caplog.text
    assert claim.identifier not in caplog.text
    assert not claim.is_live(port.now())
    assert port.held == {}


def test_block_left_by_a_forked_child_releases_nothing() -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError):
        run(leave(port, claim, "script", failed=False))

    assert port.server.value(KEY) == claim.identifier


@pytest.mark.parametrize("failed", [False, True])
def test_lease_that_expired_during_an_outage_is_lost(failed: bool) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=1)
    port.clock.advance(2)
    port.usual = request_lost

    with contextlib.suppress(LockLostError):
        run(leave(port, claim, "script", failed=failed))

    assert claim.lost_reason == "its time ran out"


def refusing(words: str, *names: str) -> Any:
    """Refuse all commands but those named."""

    def fate(request: Request) -> Any:
        if request.command[0] in names:
            return delivered(request)
        request.travel()
        raise ResponseError(words)

    return fate


@pytest.mark.parametrize("words", ["MISCONF cannot save", "OOM no memory", "NOPERM no right"])
@pytest.mark.parametrize("holder", [None, "another"])
@pytest.mark.parametrize("failed", [False, True])
def test_loss_is_reported_though_the_server_refused_the_release(
    words: str, holder: str | None, failed: bool
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)
    if holder is not None:
        port.server.put(KEY, holder, 60)
    port.usual = refusing(words, "GET")

    with contextlib.ExitStack() as stack:
        if not failed:
            stack.enter_context(pytest.raises(LockLostError))
        run(leave(port, claim, "script", failed=failed))

    assert claim.lost_reason is not None
    assert port.held == {}


@pytest.mark.parametrize(
    ("words", "cure"), [("NOPERM no right", "SECURITY.rst"), ("OOM", "memory"), ("MISCONF", "")]
)
def test_refused_release_is_logged_with_its_cure(
    words: str, cure: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.usual = refusing(words, "GET")

    run(leave(port, claim, "script", failed=False))

    assert "it will expire with its lease" in caplog.text
    assert cure in caplog.text
    assert claim.lost_reason is None


def test_server_that_did_not_answer_is_not_asked_for_the_holder() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.usual = request_lost

    run(leave(port, claim, "script", failed=False))

    assert "GET" not in port.verbs


def test_exception_from_outside_during_the_holder_look_up_is_raised() -> None:
    def cut_off(request: Request) -> Any:
        if request.command[0] == "GET":
            raise Limit
        return refusing("MISCONF")(request)

    port = new_port()
    claim = acquired(port, "a")
    port.usual = cut_off

    with pytest.raises(Limit):
        run(leave(port, claim, "script", failed=False))
