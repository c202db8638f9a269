"""Whatever the order of their lines: no lease that other threads hand in is forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.keeper import Keeper, Watch
from redis_lock_decorators.rules.options import Options

SCENES = Scenes("flow/keeper", "flow/watch", "rules/wheel")
DAY = 86_400.0


class Work:
    """What a bell has started: a renewal that is never answered."""

    def __init__(self, ended: Callable[[], object] | None) -> None:
        self._ended = ended

    def end(self) -> None:
        """Be cut short."""
        assert self._ended is not None
        self._ended()


class Bell:
    """An event loop that does what other threads ask for later; time passes when it is told to.

    Attributes:
        alarm: when the keeper ticks next.
        renewed: what a renewal was begun for, and when.
    """

    phase = 0.0

    def __init__(self) -> None:
        self.time = 1000.0
        self.alarm = math.inf
        self.renewed: list[tuple[float, Watch]] = []
        self.works: list[Work] = []
        self.calls: list[Callable[[], object]] = []
        self.keeper = Keeper(self)

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5

    def ring(self, when: float) -> None:
        self.alarm = min(self.alarm, when)

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append(function)

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> None:
        if work.cr_code.co_name == "_renew":
            self.renewed += [(self.time, watch) for watch in work.cr_frame.f_locals["trip"]]
            self.works.append(Work(ended))
        work.close()

    def port(self, port: Any) -> Any:
        return port

    def tick(self) -> None:
        """Ring."""
        self.alarm = math.inf
        self.keeper.tick()

    def goes_on(self, until: float) -> None:
        """Do what was asked for, and ring whenever it is time to, until then."""
        while self.calls or self.alarm <= until:
            while self.calls:
                self.calls.pop(0)()
            if self.alarm <= until:
                self.time = max(self.time, self.alarm)
                self.tick()
        self.time = until


class Lease:
    """What a watch refers to.

    Attributes:
        told: its loss was told.
    """

    def __init__(self, bell: Bell, name: str, **options: Any) -> None:
        self.told = False
        self.bell = bell
        chosen = Options(**options)
        self.claim: Claim = new_claim(name, expire=chosen.lease)
        self.claim.take(bell.time)
        self.watch = Watch(self, lose, self.claim, PORT, chosen)

    def keep(self) -> None:
        """Hand it in, from a thread."""
        self.bell.keeper.keep(self.watch)

    def drop(self) -> None:
        """Take it back, from a thread, and let it go."""
        self.bell.keeper.drop(self.watch)
        self.claim.leaving = True

    def is_kept_in_time(self) -> bool:
        """Whether a renewal is begun, or the loss told, when it is due."""
        due, _ = self.watch.next_look()
        if any(watch is self.watch for _, watch in self.bell.renewed):
            return True
        self.bell.goes_on(due + 0.001)
        begun = [at for at, watch in self.bell.renewed if watch is self.watch]
        return self.told or (begun != [] and begun[0] <= due)


def lose(lease: Lease) -> None:
    lease.told = True


PORT = SimulatedPort()


def all_well(bell: Bell, *kept: Lease) -> Callable[[], None]:
    """A check: these leases, and one that is handed in later, are looked after; nothing else is."""

    def check() -> None:
        later = Lease(bell, "later", expire=0.5)
        later.keep()
        assert later.is_kept_in_time(), "a lease handed in later is not rung for"
        later.drop()
        for lease in kept:
            assert lease.is_kept_in_time(), "a lease is forgotten"
        for lease in kept:
            lease.drop()
        bell.goes_on(bell.time + 61)
        assert len(bell.keeper) == 0, "something stays"

    return check


@SCENES.add
def handing_in_what_is_overdue_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    long, overdue = Lease(bell, "long", expire=60), Lease(bell, "overdue", expire=6)
    long.keep()
    bell.tick()
    bell.time += 3
    return Scene(overdue.keep, bell.tick, all_well(bell, long, overdue))


@SCENES.add
def handing_in_what_is_due_later_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    due, lease = Lease(bell, "due", expire=3), Lease(bell, "lease", expire=1)
    due.keep()
    bell.tick()
    bell.time += 0.9
    lease.claim.take(bell.time)
    return Scene(lease.keep, bell.tick, all_well(bell, lease))


@SCENES.add
def handing_in_the_first_while_ticking_for_nothing(switcher: Switcher) -> Scene:
    bell = Bell()
    lease = Lease(bell, "lease", expire=1)
    return Scene(lease.keep, bell.tick, all_well(bell, lease))


@SCENES.add
def taking_back_what_is_new_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    new, lease = Lease(bell, "new", expire=DAY), Lease(bell, "lease", expire=1)
    new.keep()
    lease.keep()
    return Scene(new.drop, bell.tick, all_well(bell, lease))


@SCENES.add
def taking_back_the_last_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    last = Lease(bell, "last", expire=30)
    last.keep()
    return Scene(last.drop, bell.tick, all_well(bell))


@SCENES.add
def taking_back_what_is_on_the_wheel_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    old, lease = Lease(bell, "old", expire=3), Lease(bell, "lease", expire=3)
    old.keep()
    lease.keep()
    bell.tick()
    bell.time += 0.9
    return Scene(old.drop, bell.tick, all_well(bell, lease))


@SCENES.add
def taking_back_and_handing_in_again_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    lease = Lease(bell, "lease", expire=3)
    lease.keep()
    bell.tick()

    def again() -> None:
        bell.keeper.drop(lease.watch)
        bell.keeper.keep(lease.watch)

    return Scene(again, bell.tick, all_well(bell, lease))


@SCENES.add
def handing_in_again_and_taking_back_while_ticking(switcher: Switcher) -> Scene:
    bell = Bell()
    lease, other = Lease(bell, "lease", expire=DAY), Lease(bell, "other", expire=3)
    lease.keep()
    other.keep()
    bell.tick()

    def again() -> None:
        lease.keep()
        lease.drop()

    return Scene(again, bell.tick, all_well(bell, other))


@SCENES.add
def two_threads_hand_in_at_once(switcher: Switcher) -> Scene:
    bell = Bell()
    one, other = Lease(bell, "one", expire=1), Lease(bell, "other", expire=2)
    return Scene(one.keep, other.keep, all_well(bell, one, other))


@SCENES.add
def two_threads_take_back_at_once(switcher: Switcher) -> Scene:
    bell = Bell()
    one, other = Lease(bell, "one", expire=1), Lease(bell, "other", expire=2)
    one.keep()
    bell.tick()
    other.keep()
    return Scene(one.drop, other.drop, all_well(bell))


@SCENES.add
def handing_in_while_another_takes_back(switcher: Switcher) -> Scene:
    bell = Bell()
    one, other = Lease(bell, "one", expire=1), Lease(bell, "other", expire=2)
    other.keep()
    return Scene(one.keep, other.drop, all_well(bell, one))


@SCENES.add
def handing_in_while_the_alarm_is_taken_away(switcher: Switcher) -> Scene:
    bell = Bell()
    old, lease = Lease(bell, "old", expire=1), Lease(bell, "lease", expire=3)
    old.keep()
    bell.tick()
    old.drop()

    def rest() -> None:
        """What the bell of threads does when it has nothing to ring for."""
        bell.alarm = math.inf
        bell.keeper.mute()
        if len(bell.keeper):
            bell.ring(bell.time)

    return Scene(lease.keep, rest, all_well(bell, lease))


@SCENES.add
def taking_back_while_a_renewal_is_cut_short(switcher: Switcher) -> Scene:
    bell = Bell()
    old, lease = Lease(bell, "old", expire=3), Lease(bell, "lease", expire=3)
    old.keep()
    lease.keep()
    bell.goes_on(1001)
    bell.renewed.clear()
    (work,) = bell.works
    return Scene(old.drop, work.end, all_well(bell, lease))


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_no_lease_is_forgotten_whatever_the_order_of_lines(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
