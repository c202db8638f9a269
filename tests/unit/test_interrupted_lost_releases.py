"""Losses that are found by a release which an exception from outside interrupts."""

from __future__ import annotations

import pytest
from support.faults import raising
from support.interruptions import Interruption, interrupt_every_line
from support.releases import KEY, Limit, every_method, new_port
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow.acquire import undo
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import ReleaseMethod


def release_and_undo(
    port: SimulatedPort, claim: Claim, interruption: Interruption, method: ReleaseMethod = "script"
) -> None:
    """Release a claim as an exit does, with the clean-up after an exception from outside."""
    try:
        with interruption:
            run(release(port, claim, method))
    except interruption.kind:
        if claim.state is not ENDED:
            run(undo(port, claim))
        raise


def test_expired_lease_is_lost_though_its_release_is_interrupted_at_any_line() -> None:
    def work(interruption: Interruption) -> None:
        port = new_port()
        claim = acquired(port, "a")
        port.clock.advance(1000)
        try:
            release_and_undo(port, claim, interruption)
        except Exception:
            assert not interruption.happened
        finally:
            assert claim.lost_reason is not None, interruption.location

    assert interrupt_every_line(work) > 50


def test_refusal_is_recorded_though_its_reply_is_the_last_that_is_read() -> None:
    untold = []

    def work(interruption: Interruption) -> None:
        port = new_port()
        claim = acquired(port, "a")
        port.server.drop(KEY)
        try:
            release_and_undo(port, claim, interruption)
        except Exception:
            assert not interruption.happened
        finally:
            if claim.lost_reason is None:
                untold.append(interruption.location.rpartition("/")[2].partition(":")[0])

    assert interrupt_every_line(work) > 50
    # From its first byte to its reply, it is not known whether the server has run the request.
    assert set(untold) <= {"requests.py", "unanswered_releases.py"}
    assert len(untold) < 20


@every_method
def test_interrupted_release_after_the_deadline_explains_no_missing_key(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.clock.advance(1000)
    port.faults = [raising(Limit())]

    with pytest.raises(Limit):
        run(release(port, claim, method))

    assert claim.lost_reason is not None
    assert claim.maybe_released == ()


def test_release_interrupted_before_its_request_explains_nothing() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    def interrupt() -> float:
        port.now = now  # type: ignore[method-assign]
        raise Limit

    now, port.now = port.now, interrupt  # type: ignore[method-assign]
    with pytest.raises(Limit):
        run(release(port, claim, "script"))
    run(undo(port, claim))

    assert claim.lost_reason is not None
