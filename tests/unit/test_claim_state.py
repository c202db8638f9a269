"""The states of a claim: only legal transitions, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from support.faults import Fate, interrupted, refused, reply_lost, request_lost
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import (
    ACTIVE,
    ENDED,
    HANDED_OFF,
    RELEASE_FAILED,
    RELEASING,
    State,
)
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._io.blocking_port import run

#: The transitions that ``State`` lists.
LEGAL = {
    ACTIVE: {RELEASING, HANDED_OFF, ENDED},
    RELEASING: {RELEASE_FAILED, ENDED},
    RELEASE_FAILED: {RELEASING, ENDED},
    HANDED_OFF: {ENDED},
    ENDED: {RELEASING, ACTIVE},
}


class Recorder:
    """Stands for the attribute ``state`` of all claims, and records the states that follow."""

    def __init__(self) -> None:
        self.slot: Any = Claim.state  # type: ignore[misc]
        self.steps: dict[Claim, list[State]] = {}

    def __get__(self, claim: Claim | None, kind: object = None) -> Any:
        return self if claim is None else self.slot.__get__(claim, kind)

    def __set__(self, claim: Claim, state: State) -> None:
        steps = self.steps.setdefault(claim, [])
        if not steps or steps[-1] is not state:
            steps.append(state)
        self.slot.__set__(claim, state)


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder = Recorder()
    monkeypatch.setattr(Claim, "state", recorder)
    yield recorder
    for steps in recorder.steps.values():
        for before, after in pairwise(steps):
            assert after in LEGAL[before], steps


@pytest.fixture
def port() -> SimulatedPort:
    return SimulatedPort(SimulatedServer(Clock()))


def test_release_ends_a_claim(port: SimulatedPort, recorder: Recorder) -> None:
    claim = acquired(port, "a")

    run(release(port, claim, "script"))

    assert recorder.steps[claim] == [ACTIVE, RELEASING, ENDED]


def test_refused_acquisition_ends_a_claim(port: SimulatedPort, recorder: Recorder) -> None:
    holder, claim = acquired(port, "a"), new_claim("a", owner="another")

    assert run(acquire(port, claim, 0, 0.005)) is not None

    assert recorder.steps == {holder: [ACTIVE], claim: [ACTIVE, ENDED]}


@pytest.mark.parametrize("fault", [request_lost, reply_lost])
def test_release_without_a_reply_is_recorded_before_it_is_repeated(
    port: SimulatedPort, recorder: Recorder, fault: Fate
) -> None:
    claim = acquired(port, "a")
    port.faults = [fault]

    run(release(port, claim, "script"))

    assert recorder.steps[claim] == [ACTIVE, RELEASING, RELEASE_FAILED, RELEASING, ENDED]


def test_claim_remains_open_if_its_release_fails(port: SimulatedPort, recorder: Recorder) -> None:
    claim = acquired(port, "a")
    port.usual = refused

    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))

    assert claim.state is RELEASE_FAILED


def test_interrupted_release_is_done_again(port: SimulatedPort, recorder: Recorder) -> None:
    claim = acquired(port, "a")
    port.faults = [interrupted(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, "script"))

    assert recorder.steps[claim] == [ACTIVE, RELEASING, ENDED]
    assert claim.maybe_released == claim.keys


def test_interrupted_release_of_an_ended_claim_can_be_repeated(port: SimulatedPort) -> None:
    claim = acquired(port, "a")
    run(release(port, claim, "script"))

    claim.reopen()

    assert claim.state is RELEASING
    run(release(port, claim, "script"))  # it finds no key, and that is no loss
    assert claim.state is ENDED


@pytest.mark.parametrize("state", [ACTIVE, RELEASING, RELEASE_FAILED, HANDED_OFF])
def test_only_an_ended_claim_is_reopened(port: SimulatedPort, state: State) -> None:
    claim = acquired(port, "a")
    Claim.state.slot.__set__(claim, state)  # type: ignore[attr-defined]

    claim.reopen()

    assert claim.state is state


@pytest.mark.parametrize("state", [HANDED_OFF, ENDED])
def test_late_release_of_keys_does_not_open_a_claim(port: SimulatedPort, state: State) -> None:
    claim = acquired(port, "a")
    Claim.state.slot.__set__(claim, state)  # type: ignore[attr-defined]

    run(release_keys(port, claim, "script", port.now() + 1))

    assert claim.state is state


@pytest.mark.parametrize("state", [RELEASING, RELEASE_FAILED, HANDED_OFF, ENDED])
def test_claim_is_live_only_while_it_is_active(port: SimulatedPort, state: State) -> None:
    claim = acquired(port, "a")
    assert claim.is_live(port.now())

    Claim.state.slot.__set__(claim, state)  # type: ignore[attr-defined]

    assert claim.is_over()
    assert not claim.is_live(port.now())


def test_reported_loss_does_not_change_the_state(port: SimulatedPort) -> None:
    claim = acquired(port, "a")

    claim.lost_reason = "its key is gone"

    assert claim.state is ACTIVE
    assert claim.is_over()
    assert claim.is_lost(port.now())
