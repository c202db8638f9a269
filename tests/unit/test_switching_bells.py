"""Whatever the order of their lines: who rings while the background thread ends is heard."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators.flow.keeper import Watch
from redis_lock_decorators.rules.options import Options
from redis_lock_decorators.world import bells
from redis_lock_decorators.world.background import Background
from redis_lock_decorators.world.bells import PRESENT, ThreadBell

SCENES = Scenes("world/bells", "world/background", "flow/keeper")


class Alarm:
    """When it rings, and whom."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.at, self.ring = math.inf, ring

    def set(self, when: float) -> None:
        self.at = min(self.at, when)


class Room(Background):
    """A thread that was told to end takes what it is asked for, and does not do it any more.

    Attributes:
        asked: what it is to call.
        work: what its thread does.
        worked: how often its thread has begun.
        closed: how often what belongs to it was closed.
    """

    alarm = staticmethod(Alarm)  # type: ignore[assignment]
    _alarm: Alarm

    def __init__(self, owner: Any, before: Background | None = None) -> None:
        self.asked: list[Callable[[], object]] = []
        self.work: Callable[[], object] = lambda: None
        self.has_left = False
        self.worked = self.closed = 0
        super().__init__(owner, before)

    def begin(self) -> None:
        """Nothing: the scene is the thread."""

    def is_fit(self) -> bool:
        return True

    def leave(self) -> None:
        self.has_left = True

    def _accept(self, function: Callable[[], object]) -> bool:
        if self.closed:
            return False
        self.asked.append(function)
        return True

    def _work(self) -> None:
        self.worked += 1
        self.work()

    def _dismantle(self) -> None:
        self.closed += 1

    def be(self, work: Callable[[], object]) -> None:
        """Be its thread, which does this, and ends if it was told to."""
        threading.current_thread().place = self  # type: ignore[attr-defined]
        work()
        if self.has_left:
            self._end()

    def catches_up(self) -> None:
        """Call what it was asked to, if it still does."""
        while self.asked and not self.has_left:
            self.asked.pop(0)()


def room_of(bell: ThreadBell) -> Room:
    """The place that the bell has now."""
    room = bell._present()
    assert isinstance(room, Room)
    return room


def as_thread(bell: ThreadBell, work: Callable[[], object]) -> Callable[[], None]:
    """An operation: what the thread of the bell does."""
    room = room_of(bell)
    return lambda: room.be(work)


class Waiting:
    """A listener that somebody waits for."""

    is_open = False

    def open(self) -> None:
        self.is_open = True


class Lease:
    def __init__(self, expire: float = 3) -> None:
        options = Options(expire=expire)
        self.claim = new_claim("a", expire=options.lease)
        self.claim.take(time.monotonic())
        port = SimulatedPort()
        port.slotted = True  # no connection is opened ahead, however slow the lines are traced
        self.watch = Watch(self, print, self.claim, port, options)

    def is_rung_for(self, bell: ThreadBell) -> bool:
        room = bell.rooms.get(PRESENT)
        assert isinstance(room, Room)
        room.catches_up()
        return room._alarm.at <= self.watch.next_look()[0]


@SCENES.add
def a_lease_is_handed_in_while_the_thread_ends(switcher: Switcher) -> Scene:
    bell, lease = ThreadBell(), Lease()
    bell.ring(bell.now())

    def check() -> None:
        assert lease.is_rung_for(bell)

    return Scene(lambda: bell.keeper.keep(lease.watch), as_thread(bell, bell.rest), check)


@SCENES.add
def a_lease_is_handed_in_while_the_last_look_finds_nothing(switcher: Switcher) -> Scene:
    bell, lease, old = ThreadBell(), Lease(), Lease(0.5)
    bell.keeper.keep(old.watch)
    bell.keeper.drop(old.watch)

    def check() -> None:
        assert lease.is_rung_for(bell)

    return Scene(lambda: bell.keeper.keep(lease.watch), as_thread(bell, bell.keeper.tick), check)


@SCENES.add
def a_waiter_comes_while_the_thread_ends(switcher: Switcher) -> Scene:
    bell, waiting = ThreadBell(), Waiting()
    bell.ring(bell.now())

    def come() -> None:
        bell.wanted.add(waiting)
        bell.call(waiting.open)

    def check() -> None:
        room = room_of(bell)
        assert waiting.open in room.asked
        assert not room.has_left

    return Scene(come, as_thread(bell, bell.rest), check)


@SCENES.add
def two_threads_ring_first(switcher: Switcher) -> Scene:
    bell = ThreadBell()

    def check() -> None:
        room = room_of(bell)
        room.catches_up()
        assert room._alarm.at == 1.0

    return Scene(lambda: bell.ring(1.0), lambda: bell.ring(2.0), check)


@SCENES.add
def two_threads_are_begun_for_one_place(switcher: Switcher) -> Scene:
    room = Room(ThreadBell())

    def check() -> None:
        assert (room.worked, room.closed, room.has_ended) == (1, 1, True)

    return Scene(room._be, room._be, check)


@SCENES.add
def a_place_is_dismissed_while_its_thread_begins(switcher: Switcher) -> Scene:
    room = Room(ThreadBell())

    def check() -> None:
        assert (room.closed, room.has_ended) == (1, True)
        assert room.worked == 0 or room.has_left

    return Scene(room._be, room.dismiss, check)


@SCENES.add
def a_thread_dies_while_a_lease_is_handed_in(switcher: Switcher) -> Scene:
    """Nothing told it to end: an interruption came out of its event loop."""
    bell, lease = ThreadBell(), Lease()
    room = room_of(bell)

    def check() -> None:
        assert room.has_ended
        assert room_of(bell) is not room
        assert lease.is_rung_for(bell)

    return Scene(lambda: bell.keeper.keep(lease.watch), room._be, check)


@SCENES.add
def the_next_place_begins_while_the_one_before_ends(switcher: Switcher) -> Scene:
    bell, waiting = ThreadBell(), Waiting()
    before = room_of(bell)
    bell.wanted.add(waiting)
    bell.retire(before)
    after = room_of(bell)
    after._pause = lambda seconds: switcher.pause()  # type: ignore[method-assign]
    order: list[str] = []
    before._dismantle = lambda: order.append("closed")  # type: ignore[method-assign]
    after.work = lambda: order.append("works")

    def check() -> None:
        assert order == ["closed", "works"]
        room = room_of(bell)
        room.catches_up()
        assert waiting.is_open

    return Scene(after._be, before._be, check)


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_who_rings_is_heard_whatever_the_order_of_lines(
    scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "Room", Room)

    assert SCENES.explore(scene) > 5
