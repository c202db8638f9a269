"""Code that runs on the stack of an exchange of a lock does not wait for that lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Fate, Request, delivered
from support.simulation import SimulatedPort, acquired, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockError


def before(handler: Callable[[], object]) -> Fate:
    """Call a signal handler before the request is sent."""

    def fate(request: Request) -> Any:
        handler()
        return delivered(request)

    return fate


def after(handler: Callable[[], object]) -> Fate:
    """Call a signal handler before the reply is read."""

    def fate(request: Request) -> Any:
        reply = delivered(request)
        handler()
        return reply

    return fate


class Handler:
    """A signal handler that acquires the lock; records the outcome and its duration."""

    def __init__(self, port: SimulatedPort, wait: float = 100) -> None:
        self.port, self.wait = port, wait
        self.outcome: Refusal | LockError | str | None = "not called"
        self.seconds = 0.0

    def __call__(self) -> None:
        began, claim = self.port.now(), new_claim("a", owner="me")
        try:
            self.outcome = run(acquire(self.port, claim, self.wait, 0.1))
        except LockError as error:
            self.outcome = error
        else:
            if self.outcome is None:
                run(release(self.port, claim, "script"))
        self.seconds = self.port.now() - began


@pytest.mark.parametrize("moment", [before, after])
def test_handler_during_a_release_never_waits(moment: Any) -> None:
    port = SimulatedPort()
    mine, handler = acquired(port, "a", owner="me"), Handler(port)
    port.faults = [moment(handler)]

    run(release(port, mine, "script"))

    if moment is before:
        assert isinstance(handler.outcome, LockError)
        assert "would wait for itself" in str(handler.outcome)
        assert handler.outcome.lock_name == "a"
    else:
        assert handler.outcome is None
    assert handler.seconds < 0.1
    assert port.server.value(b"sys:lock:a") is None


@pytest.mark.parametrize("moment", [before, after])
def test_handler_during_an_acquisition_never_waits(moment: Any) -> None:
    port = SimulatedPort()
    claim, handler = new_claim("a", owner="me"), Handler(port)
    port.faults = [moment(handler)]

    assert run(acquire(port, claim, 10, 0.1)) is None

    if moment is after:
        assert isinstance(handler.outcome, LockError)
    else:
        assert handler.outcome is None
    assert handler.seconds < 0.1
    assert claim.is_live(port.now())
    assert port.server.value(b"sys:lock:a") == claim.identifier


def test_handler_that_tries_once_is_only_refused() -> None:
    port = SimulatedPort()
    mine, handler = acquired(port, "a", owner="me"), Handler(port, wait=0)
    port.faults = [before(handler)]

    run(release(port, mine, "script"))

    assert isinstance(handler.outcome, Refusal)
    assert handler.outcome.holder == mine.identifier


def test_handler_during_a_request_of_another_lock_waits() -> None:
    port = SimulatedPort()
    mine, theirs = acquired(port, "b", owner="me"), acquired(port, "a", owner="you")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))
    handler = Handler(port)
    port.faults = [before(handler)]

    run(release(port, mine, "script"))

    assert handler.outcome is None
    assert handler.seconds > 1


def test_handler_during_a_wait_for_another_holder_waits_too() -> None:
    port = SimulatedPort()
    theirs, claim = acquired(port, "a", owner="you"), new_claim("a", owner="me")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))
    handler = Handler(port)
    port.faults = [after(handler)]

    assert run(acquire(port, claim, 10, 0.1)) is None

    assert handler.outcome is None


def test_lock_whose_holder_the_waiting_would_block_is_refused() -> None:
    port = SimulatedPort()
    port.runs_tasks = True
    held, claim = acquired(port, "a", owner="this thread"), outside("a", owner="this thread")

    with pytest.raises(LockError, match="another task of this event loop") as caught:
        run(acquire(port, claim, math.inf, 0.1))

    assert caught.value.lock_name == "a"
    assert port.log == []
    assert held.is_live(port.now())


def test_lock_of_another_thread_is_waited_for_on_an_event_loop() -> None:
    port = SimulatedPort()
    port.runs_tasks = True
    theirs, claim = acquired(port, "a", owner="another"), outside("a", owner="this thread")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))

    assert run(acquire(port, claim, 10, 0.1)) is None


def test_lock_of_this_thread_is_waited_for_without_an_event_loop() -> None:
    port = SimulatedPort()
    theirs, claim = acquired(port, "a", owner="this thread"), outside("a", owner="this thread")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))

    assert run(acquire(port, claim, 10, 0.1)) is None


def outside(name: str, owner: object) -> Claim:
    """A claim whose context knows of no enclosing block."""
    claim = new_claim(name, owner=owner)
    claim.is_inside = lambda other: False
    return claim
