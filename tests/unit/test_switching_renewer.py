"""Leases added by other threads are renewed in time, with thread switches at any line."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import RELEASING
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._rules.options import Options

SCENES = Scenes(
    *("_flow/renewal/renewer", "_flow/renewal/schedule", "_flow/renewal/tracked_lease"),
    "_rules/timer_wheel",
)
DAY = 86_400.0


class Work:
    """A started renewal that is never answered."""

    def __init__(self, ended: Callable[[], object] | None) -> None:
        self._ended = ended

    def end(self) -> None:
        """End it as a cancellation does."""
        assert self._ended is not None
        self._ended()


class FakeLoop:
    """An event loop that runs callbacks and timers when ``run_until`` is called.

    Attributes:
        alarm: when the renewer ticks next.
        renewed: the leases whose renewal was started, with the time.
    """

    phase = 0.0

    def __init__(self) -> None:
        self.time = 1000.0
        self.alarm = math.inf
        self.renewed: list[tuple[float, TrackedLease]] = []
        self.works: list[Work] = []
        self.calls: list[Callable[[], object]] = []
        self.renewer = Renewer(self)

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5

    def wake_at(self, when: float) -> None:
        self.alarm = min(self.alarm, when)

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append(function)

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> None:
        if work.cr_code.co_name == "_renew":
            self.renewed += [(self.time, watch) for watch in work.cr_frame.f_locals["batch"]]
            self.works.append(Work(ended))
        work.close()

    def port(self, port: Any) -> Any:
        return port

    def tick(self) -> None:
        self.alarm = math.inf
        self.renewer.tick()

    def run_until(self, until: float) -> None:
        """Run the callbacks and timers that are due by ``until``."""
        while self.calls or self.alarm <= until:
            while self.calls:
                self.calls.pop(0)()
            if self.alarm <= until:
                self.time = max(self.time, self.alarm)
                self.tick()
        self.time = until


class Lease:
    """A lease whose claim is tracked.

    Attributes:
        reported: its loss was reported.
    """

    def __init__(self, lease_loop: FakeLoop, name: str, **options: Any) -> None:
        self.reported = False
        self.lease_loop = lease_loop
        chosen = Options(**options)
        self.claim: Claim = new_claim(name, expire=chosen.lease_seconds)
        self.claim.mark_held(lease_loop.time)
        self.watch = TrackedLease(self, lose, self.claim, PORT, chosen)
        self.ownership = self.watch.ownership

    def add(self) -> None:
        """Add it to the renewer, from a thread."""
        self.lease_loop.renewer.add(self.watch)

    def drop(self) -> None:
        """Remove it from the renewer, from a thread, and release it."""
        self.lease_loop.renewer.remove(self.watch)
        self.claim.state = RELEASING

    def is_renewed_in_time(self) -> bool:
        """Whether its renewal is started, or its loss reported, when due."""
        due, _ = self.watch.next_check()
        if any(watch is self.watch for _, watch in self.lease_loop.renewed):
            return True
        self.lease_loop.run_until(due + 0.001)
        begun = [at for at, watch in self.lease_loop.renewed if watch is self.watch]
        return self.reported or (begun != [] and begun[0] <= due)


def lose(lease: Lease) -> None:
    lease.reported = True


PORT = SimulatedPort()


def only_renewed(lease_loop: FakeLoop, *kept: Lease) -> Callable[[], None]:
    """A check that only these leases, and one that is added later, are renewed."""

    def check() -> None:
        later = Lease(lease_loop, "later", expire=0.5)
        later.add()
        assert later.is_renewed_in_time(), "no tick for a lease that is added later"
        later.drop()
        for lease in kept:
            assert lease.is_renewed_in_time(), "a lease is not renewed"
        for lease in kept:
            lease.drop()
        lease_loop.run_until(lease_loop.time + 61)
        assert len(lease_loop.renewer) == 0, "a lease remains"

    return check


@SCENES.add
def adding_an_overdue_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    long, overdue = Lease(lease_loop, "long", expire=60), Lease(lease_loop, "overdue", expire=6)
    long.add()
    lease_loop.tick()
    lease_loop.time += 3
    return Scene(overdue.add, lease_loop.tick, only_renewed(lease_loop, long, overdue))


@SCENES.add
def adding_a_later_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    due, lease = Lease(lease_loop, "due", expire=3), Lease(lease_loop, "lease", expire=1)
    due.add()
    lease_loop.tick()
    lease_loop.time += 0.9
    lease.claim.mark_held(lease_loop.time)
    return Scene(lease.add, lease_loop.tick, only_renewed(lease_loop, lease))


@SCENES.add
def adding_the_first_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    lease = Lease(lease_loop, "lease", expire=1)
    return Scene(lease.add, lease_loop.tick, only_renewed(lease_loop, lease))


@SCENES.add
def removing_a_new_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    new, lease = Lease(lease_loop, "new", expire=DAY), Lease(lease_loop, "lease", expire=1)
    new.add()
    lease.add()
    return Scene(new.drop, lease_loop.tick, only_renewed(lease_loop, lease))


@SCENES.add
def removing_the_last_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    last = Lease(lease_loop, "last", expire=30)
    last.add()
    return Scene(last.drop, lease_loop.tick, only_renewed(lease_loop))


@SCENES.add
def removing_a_scheduled_lease_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    old, lease = Lease(lease_loop, "old", expire=3), Lease(lease_loop, "lease", expire=3)
    old.add()
    lease.add()
    lease_loop.tick()
    lease_loop.time += 0.9
    return Scene(old.drop, lease_loop.tick, only_renewed(lease_loop, lease))


@SCENES.add
def removing_and_adding_again_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    lease = Lease(lease_loop, "lease", expire=3)
    lease.add()
    lease_loop.tick()

    def again() -> None:
        lease_loop.renewer.remove(lease.watch)
        lease_loop.renewer.add(lease.watch)

    return Scene(again, lease_loop.tick, only_renewed(lease_loop, lease))


@SCENES.add
def adding_again_and_removing_while_ticking(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    lease, other = Lease(lease_loop, "lease", expire=DAY), Lease(lease_loop, "other", expire=3)
    lease.add()
    other.add()
    lease_loop.tick()

    def again() -> None:
        lease.add()
        lease.drop()

    return Scene(again, lease_loop.tick, only_renewed(lease_loop, other))


@SCENES.add
def two_threads_add(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    one, other = Lease(lease_loop, "one", expire=1), Lease(lease_loop, "other", expire=2)
    return Scene(one.add, other.add, only_renewed(lease_loop, one, other))


@SCENES.add
def two_threads_remove_leases(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    one, other = Lease(lease_loop, "one", expire=1), Lease(lease_loop, "other", expire=2)
    one.add()
    lease_loop.tick()
    other.add()
    return Scene(one.drop, other.drop, only_renewed(lease_loop))


@SCENES.add
def adding_while_another_is_removed(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    one, other = Lease(lease_loop, "one", expire=1), Lease(lease_loop, "other", expire=2)
    other.add()
    return Scene(one.add, other.drop, only_renewed(lease_loop, one))


@SCENES.add
def adding_while_the_timer_is_cancelled(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    old, lease = Lease(lease_loop, "old", expire=1), Lease(lease_loop, "lease", expire=3)
    old.add()
    lease_loop.tick()
    old.drop()

    def stop_if_idle() -> None:
        """Stop the timer, as the background loop of threads does without work."""
        lease_loop.alarm = math.inf
        lease_loop.renewer.forget_wake_up()
        if len(lease_loop.renewer):
            lease_loop.wake_at(lease_loop.time)

    return Scene(lease.add, stop_if_idle, only_renewed(lease_loop, lease))


@SCENES.add
def removing_while_a_renewal_is_cancelled(switcher: Switcher) -> Scene:
    lease_loop = FakeLoop()
    old, lease = Lease(lease_loop, "old", expire=3), Lease(lease_loop, "lease", expire=3)
    old.add()
    lease.add()
    lease_loop.run_until(1001)
    lease_loop.renewed.clear()
    (work,) = lease_loop.works
    return Scene(old.drop, work.end, only_renewed(lease_loop, lease))


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_leases_are_renewed_with_thread_switches_at_any_line(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
