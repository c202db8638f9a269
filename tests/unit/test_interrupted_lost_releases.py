"""Losses that are found by a release which an exception from outside interrupts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.faults import raising
from support.interruptions import Interruption, interrupt_every_line
from support.releases import KEY, Limit, every_method, new_port
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED, RELEASING
from redis_lock_decorators._flow.late_outcomes import late_outcome
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.release_requests import release_group
from redis_lock_decorators._flow.requests import refusal_of
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError


def release_and_undo(port: SimulatedPort, claim: Claim, interruption: Interruption) -> None:
    """Release a claim as an exit does, with the clean-up after an exception from outside."""
    try:
        with interruption:
            run(release(port, claim, "script"))
    except interruption.kind:
        if claim.state is not ENDED:
            run(undo(port, claim))
        raise


def finds_the_loss_at_any_line(lose: Callable[[SimulatedPort], object], **options: Any) -> None:
    """Interrupt the release of a lost lease at each line: its loss is recorded each time."""

    def work(interruption: Interruption) -> None:
        port = new_port(**options)
        claim = acquired(port, "a")
        lose(port)
        try:
            release_and_undo(port, claim, interruption)
        except Exception:
            assert not interruption.happened
        finally:
            assert claim.lost_reason is not None, interruption.location

    assert interrupt_every_line(work) > 50


def test_expired_lease_is_lost_though_its_release_is_interrupted_at_any_line() -> None:
    finds_the_loss_at_any_line(lambda port: port.clock.advance(1000))


def test_lease_that_is_over_is_lost_though_its_release_is_interrupted_at_any_line() -> None:
    """The key is still there: it expires later than the lease ends for its holder."""

    def work(interruption: Interruption) -> None:
        port = new_port()
        claim = acquired(port, "a", expire=10)
        claim.lease_ref = lambda: claim
        port.clock.advance(9.95)
        try:
            release_and_undo(port, claim, interruption)
        except LockLostError:
            assert not interruption.happened
        finally:
            assert claim.lost_reason is not None, interruption.location
            assert port.server.value(KEY) is None

    assert interrupt_every_line(work) > 50


def test_loss_is_found_though_a_recorded_release_is_interrupted_at_any_line() -> None:
    """Clients that resend requests have each release recorded: a repetition knows what it did."""
    finds_the_loss_at_any_line(lambda port: port.server.drop(KEY), may_resend=True)


def test_recorded_release_that_is_interrupted_at_any_line_is_no_loss() -> None:
    def work(interruption: Interruption) -> None:
        port = new_port(may_resend=True)
        claim = acquired(port, "a")
        try:
            release_and_undo(port, claim, interruption)
        finally:
            assert claim.lost_reason is None, interruption.location

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


def test_late_reply_that_is_interrupted_at_any_line_is_no_loss() -> None:
    """The reply to a release is read after its interruption, and that is interrupted, too."""

    def work(interruption: Interruption) -> None:
        port = new_port()
        claim = acquired(port, "a")
        until = port.now() + 1000
        claim.release_sent = claim.keys, port.now()
        run(release_group(port, claim, claim.keys, "script", until))
        mark = f"{claim.identifier}:0"

        async def arrival(until: float) -> str:
            return mark

        claim.state, claim.late_reply = RELEASING, (arrival, mark, refusal_of)
        try:
            with interruption:
                run(late_outcome(port, claim))
        finally:
            run(undo(port, claim))
            assert claim.lost_reason is None, interruption.location

    assert interrupt_every_line(work) > 5
