"""Exceptions from outside, such as KeyboardInterrupt, while a lock is released."""

import pytest
from support.faults import (
    interrupted,
    raising,
    refused,
    reply_lost,
    request_lost,
)
from support.releases import FIRST, KEY, SECOND, Limit, every_method, new_port
from support.simulation import acquired, cluster_port

from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.release import release, release_keys
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
