"""Two threads release or extend one claim, with thread switches at any line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.simulation import SimulatedPort, acquired
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError

RELEASE = Scenes(
    *("_flow/release", "_flow/release_requests"),
    *("_flow/claim", "_flow/losses", "_flow/extend"),
)


def released(port: SimulatedPort, claim: Claim) -> None:
    """Check that a claim has ended, and holds nothing."""
    assert claim.state is ENDED
    assert not claim.is_live(port.now())
    assert port.held == {}
    assert port.server.value(claim.keys[0]) is None


def release_once(port: SimulatedPort, claim: Claim) -> None:
    with suppress(LockNotOwnedError):  # the other thread was first
        run(release(port, claim, "script"))


class SwitchingPort(SimulatedPort):
    """A port that lets the other thread run during its pauses."""

    def __init__(self, switcher: Switcher) -> None:
        super().__init__()
        self._switcher = switcher

    async def sleep(self, seconds: float) -> None:
        self._switcher.give_way()


@RELEASE.add
def two_threads_release_a_lost_claim(switcher: Switcher) -> Scene:
    port, losses = SwitchingPort(switcher), []
    claim = acquired(port, "a")
    port.server.drop(claim.keys[0])

    def release_lost() -> None:
        try:
            run(release(port, claim, "script"))
        except LockLostError as error:
            losses.append(error)

    def check() -> None:
        assert len(losses) == 1, "the loss is reported to one of them"
        assert claim.lost_reason is not None
        released(port, claim)

    return Scene(release_lost, release_lost, check)


@RELEASE.add
def two_threads_release_one_claim(switcher: Switcher) -> Scene:
    port = SwitchingPort(switcher)
    claim = acquired(port, "a")
    return Scene(
        lambda: release_once(port, claim),
        lambda: release_once(port, claim),
        lambda: released(port, claim),
    )


@RELEASE.add
def one_thread_extends_while_another_releases(switcher: Switcher) -> Scene:
    port = SimulatedPort()
    claim = acquired(port, "a")

    def extend_once() -> None:
        with suppress(LockNotOwnedError):
            run(extend(port, claim, 60))

    return Scene(lambda: release_once(port, claim), extend_once, lambda: released(port, claim))


@pytest.mark.parametrize("make", list(RELEASE), ids=name_of)
def test_claim_is_released_with_thread_switches_at_any_line(make: Make) -> None:
    assert RELEASE.explore(make) > 10
