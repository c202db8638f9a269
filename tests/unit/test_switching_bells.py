"""Whatever the order of their lines: who rings while the background thread ends is heard."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators.flow.keeper import Manners, Watch
from redis_lock_decorators.rules.options import Options
from redis_lock_decorators.world import bells
from redis_lock_decorators.world.bells import PRESENT, ThreadBell

SCENES = Scenes("world/bells", "flow/keeper")
MANNERS = Manners(lambda lease: False, lambda lease: None)


class Room:
    """A thread that was told to end takes what it is asked for, and does not do it any more.

    Attributes:
        alarm: when it rings.
        asked: what it is to call.
    """

    def __init__(self, keeper: Any) -> None:
        self.alarm = math.inf
        self.asked: list[Callable[[], object]] = []
        self.has_left = False

    def ring(self, when: float) -> bool:
        if not self.has_left:
            self.alarm = min(self.alarm, when)
        return True

    def call(self, function: Callable[[], object]) -> bool:
        if not self.has_left:
            self.asked.append(function)
        return True

    def leave(self) -> None:
        self.has_left = True

    def close(self) -> None:
        self.has_left = True


class Waiting:
    """A listener that somebody waits for."""

    def open(self) -> None:
        pass


class Lease:
    def __init__(self, expire: float = 3) -> None:
        options = Options(expire=expire)
        self.claim = new_claim("a", expire=options.lease)
        self.claim.take(time.monotonic())
        self.watch = Watch(self, MANNERS, self.claim, SimulatedPort(), options)

    def is_rung_for(self, bell: ThreadBell) -> bool:
        room: Any = bell.rooms.get(PRESENT)
        while room is not None and room.asked:
            room.asked.pop(0)()
        return room is not None and room.alarm <= self.watch.next_look()[0]


@SCENES.add
def a_lease_is_handed_in_while_the_thread_ends(switcher: Switcher) -> Scene:
    bell, lease = ThreadBell(), Lease()
    bell.ring(bell.now())

    def check() -> None:
        assert lease.is_rung_for(bell)

    return Scene(lambda: bell.keeper.keep(lease.watch), bell.rest, check)


@SCENES.add
def a_lease_is_handed_in_while_the_last_look_finds_nothing(switcher: Switcher) -> Scene:
    bell, lease, old = ThreadBell(), Lease(), Lease(0.5)
    bell.keeper.keep(old.watch)
    bell.keeper.drop(old.watch)

    def check() -> None:
        assert lease.is_rung_for(bell)

    return Scene(lambda: bell.keeper.keep(lease.watch), bell.keeper.tick, check)


@SCENES.add
def a_waiter_comes_while_the_thread_ends(switcher: Switcher) -> Scene:
    bell, waiting = ThreadBell(), Waiting()
    bell.ring(bell.now())

    def come() -> None:
        bell.wanted.add(waiting)
        bell.call(waiting.open)

    def check() -> None:
        room: Any = bell.rooms[PRESENT]
        assert waiting.open in room.asked

    return Scene(come, bell.rest, check)


@SCENES.add
def two_threads_ring_first(switcher: Switcher) -> Scene:
    bell = ThreadBell()

    def check() -> None:
        room: Any = bell.rooms[PRESENT]
        assert room.alarm == 1.0

    return Scene(lambda: bell.ring(1.0), lambda: bell.ring(2.0), check)


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_who_rings_is_heard_whatever_the_order_of_lines(
    scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "Room", Room)

    assert SCENES.explore(scene) > 5
