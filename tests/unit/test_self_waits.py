"""What runs amid an exchange of a lock, on its own stack, does not wait for that lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Fate, Request, delivered
from support.simulation import SimulatedPort, new_claim, taken

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockError


def before(handler: Callable[[], object]) -> Fate:
    """A signal comes before the request has left."""

    def fate(request: Request) -> Any:
        handler()
        return delivered(request)

    return fate


def after(handler: Callable[[], object]) -> Fate:
    """A signal comes before the reply is read."""

    def fate(request: Request) -> Any:
        reply = delivered(request)
        handler()
        return reply

    return fate


class Handler:
    """A signal handler that takes the lock; what came of it, and how long that took."""

    def __init__(self, port: SimulatedPort, wait: float = 100) -> None:
        self.port, self.wait = port, wait
        self.found: Refusal | LockError | str | None = "not called"
        self.seconds = 0.0

    def __call__(self) -> None:
        began, claim = self.port.now(), new_claim("a", owner="me")
        try:
            self.found = run(acquire(self.port, claim, self.wait, 0.1))
        except LockError as error:
            self.found = error
        else:
            if self.found is None:
                run(release(self.port, claim, "script"))
        self.seconds = self.port.now() - began


@pytest.mark.parametrize("moment", [before, after])
def test_handler_amid_a_release_never_waits(moment: Any) -> None:
    port = SimulatedPort()
    mine, handler = taken(port, "a", owner="me"), Handler(port)
    port.faults = [moment(handler)]

    run(release(port, mine, "script"))

    if moment is before:
        assert isinstance(handler.found, LockError)
        assert "would wait for itself" in str(handler.found)
        assert handler.found.lock_name == "a"
    else:
        assert handler.found is None
    assert handler.seconds < 0.1
    assert port.server.value(b"sys:lock:a") is None


@pytest.mark.parametrize("moment", [before, after])
def test_handler_amid_an_acquisition_never_waits(moment: Any) -> None:
    port = SimulatedPort()
    claim, handler = new_claim("a", owner="me"), Handler(port)
    port.faults = [moment(handler)]

    assert run(acquire(port, claim, 10, 0.1)) is None

    if moment is after:
        assert isinstance(handler.found, LockError)
    else:
        assert handler.found is None
    assert handler.seconds < 0.1
    assert claim.is_live(port.now())
    assert port.server.value(b"sys:lock:a") == claim.identifier


def test_handler_that_tries_once_is_merely_refused() -> None:
    port = SimulatedPort()
    mine, handler = taken(port, "a", owner="me"), Handler(port, wait=0)
    port.faults = [before(handler)]

    run(release(port, mine, "script"))

    assert isinstance(handler.found, Refusal)
    assert handler.found.holder == mine.identifier


def test_handler_amid_another_lock_waits_for_the_one_it_wants() -> None:
    port = SimulatedPort()
    mine, theirs = taken(port, "b", owner="me"), taken(port, "a", owner="you")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))
    handler = Handler(port)
    port.faults = [before(handler)]

    run(release(port, mine, "script"))

    assert handler.found is None
    assert handler.seconds > 1


def test_handler_amid_a_wait_for_the_lock_of_another_waits_too() -> None:
    port = SimulatedPort()
    theirs, claim = taken(port, "a", owner="you"), new_claim("a", owner="me")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))
    handler = Handler(port)
    port.faults = [after(handler)]

    assert run(acquire(port, claim, 10, 0.1)) is None

    assert handler.found is None


def test_lock_of_another_task_is_not_waited_for_where_that_would_stop_its_event_loop() -> None:
    port = SimulatedPort()
    port.runs_tasks = True
    held, claim = taken(port, "a", owner="this thread"), elsewhere("a", owner="this thread")

    with pytest.raises(LockError, match="another task of this event loop") as caught:
        run(acquire(port, claim, math.inf, 0.1))

    assert caught.value.lock_name == "a"
    assert port.log == []
    assert held.is_live(port.now())


def test_lock_of_another_thread_is_waited_for_on_an_event_loop_too() -> None:
    port = SimulatedPort()
    port.runs_tasks = True
    theirs, claim = taken(port, "a", owner="another"), elsewhere("a", owner="this thread")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))

    assert run(acquire(port, claim, 10, 0.1)) is None


def test_lock_of_a_block_that_may_be_left_elsewhere_is_waited_for_without_an_event_loop() -> None:
    port = SimulatedPort()
    theirs, claim = taken(port, "a", owner="this thread"), elsewhere("a", owner="this thread")
    port.clock.at(1003, lambda: run(release(port, theirs, "script")))

    assert run(acquire(port, claim, 10, 0.1)) is None


def elsewhere(name: str, owner: object) -> Claim:
    """A claim of code whose context tells of no block around it."""
    claim = new_claim(name, owner=owner)
    claim.is_around = lambda other: False
    return claim
