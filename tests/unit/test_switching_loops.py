"""Background work requested while the thread ends is done, with thread switches at any line."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.background import background_loop
from redis_lock_decorators._io.background.atomic_slot import AtomicSlot
from redis_lock_decorators._io.background.background_loop import BackgroundLoop
from redis_lock_decorators._io.background.worker import BackgroundWorker
from redis_lock_decorators._rules.options import Options

SCENES = Scenes(
    "_io/background/atomic_slot",
    "_io/background/background_loop",
    "_io/background/worker",
    "_flow/renewal/renewer",
    "_flow/renewal/schedule",
)


class Timer:
    """A timer that is called by the test."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.at, self.wake_at = math.inf, ring

    def set(self, when: float) -> None:
        self.at = min(self.at, when)


class LoopThread(BackgroundWorker):
    """A worker that accepts calls after ``stop`` without running them.

    Attributes:
        pending: the functions to call.
        work: the work of its thread.
        worked: how often its thread has started.
        closed: how often it was closed.
    """

    timer = staticmethod(Timer)  # type: ignore[assignment]
    _timer: Timer

    def __init__(self, owner: Any, previous: BackgroundWorker | None = None) -> None:
        self.pending: list[Callable[[], object]] = []
        self.work: Callable[[], object] = lambda: None
        self.has_left = False
        self.worked = self.closed = 0
        super().__init__(owner, previous)

    def begin(self) -> None:
        """Nothing: the scene is the thread."""

    def is_fit(self) -> bool:
        return True

    def stop(self) -> None:
        self.has_left = True

    def _enqueue(self, function: Callable[[], object]) -> bool:
        if self.closed:
            return False
        self.pending.append(function)
        return True

    def _work(self) -> None:
        self.worked += 1
        self.work()

    def _clean_up(self) -> None:
        self.closed += 1

    def run_as_thread(self, work: Callable[[], object]) -> None:
        """Run the work as its thread, and end after ``stop``."""
        threading.current_thread().worker = self  # type: ignore[attr-defined]
        work()
        if self.has_left:
            self._end()

    def run_pending(self) -> None:
        """Call the enqueued functions, unless it has stopped."""
        while self.pending and not self.has_left:
            self.pending.pop(0)()


def loop_thread_of(lease_loop: BackgroundLoop) -> LoopThread:
    """The present worker of the loop."""
    loop_thread = lease_loop._present()
    assert isinstance(loop_thread, LoopThread)
    return loop_thread


def as_thread(lease_loop: BackgroundLoop, work: Callable[[], object]) -> Callable[[], None]:
    """An operation that runs as the thread of the loop."""
    loop_thread = loop_thread_of(lease_loop)
    return lambda: loop_thread.run_as_thread(work)


class SubscriberWithWaiter:
    """A subscriber with a waiter."""

    is_open = False

    def open(self) -> None:
        self.is_open = True


class Lease:
    def __init__(self, expire: float = 3) -> None:
        options = Options(expire=expire)
        self.claim = new_claim("a", expire=options.lease_seconds)
        self.claim.mark_held(time.monotonic())
        port = SimulatedPort()
        port.slotted = True  # no connection is opened ahead, however slow the lines are traced
        self.watch = TrackedLease(self, print, self.claim, port, options)
        self.ownership = self.watch.ownership

    def wakes_in_time(self, lease_loop: BackgroundLoop) -> bool:
        loop_thread = lease_loop.current_worker()
        assert isinstance(loop_thread, LoopThread)
        loop_thread.run_pending()
        return loop_thread._timer.at <= self.watch.next_check()[0]


@SCENES.add
def lease_is_added_while_the_thread_ends(switcher: Switcher) -> Scene:
    lease_loop, lease = BackgroundLoop(), Lease()
    lease_loop.wake_at(lease_loop.now())

    def check() -> None:
        assert lease.wakes_in_time(lease_loop)

    return Scene(
        lambda: lease_loop.renewer.add(lease.watch),
        as_thread(lease_loop, lease_loop.stop_if_idle),
        check,
    )


@SCENES.add
def lease_is_added_while_the_last_tick_finds_none(switcher: Switcher) -> Scene:
    lease_loop, lease, old = BackgroundLoop(), Lease(), Lease(0.5)
    lease_loop.renewer.add(old.watch)
    lease_loop.renewer.remove(old.watch)

    def check() -> None:
        assert lease.wakes_in_time(lease_loop)

    return Scene(
        lambda: lease_loop.renewer.add(lease.watch),
        as_thread(lease_loop, lease_loop.renewer.tick),
        check,
    )


@SCENES.add
def waiter_joins_while_the_thread_ends(switcher: Switcher) -> Scene:
    lease_loop, waiting = BackgroundLoop(), SubscriberWithWaiter()
    lease_loop.wake_at(lease_loop.now())

    def join() -> None:
        lease_loop.wanted.add(waiting)
        lease_loop.call(waiting.open)

    def check() -> None:
        loop_thread = loop_thread_of(lease_loop)
        assert waiting.open in loop_thread.pending
        assert not loop_thread.has_left

    return Scene(join, as_thread(lease_loop, lease_loop.stop_if_idle), check)


@SCENES.add
def two_threads_set_the_first_timer(switcher: Switcher) -> Scene:
    lease_loop = BackgroundLoop()

    def check() -> None:
        loop_thread = loop_thread_of(lease_loop)
        loop_thread.run_pending()
        assert loop_thread._timer.at == 1.0

    return Scene(lambda: lease_loop.wake_at(1.0), lambda: lease_loop.wake_at(2.0), check)


@SCENES.add
def two_threads_are_started_for_one_worker(switcher: Switcher) -> Scene:
    loop_thread = LoopThread(BackgroundLoop())

    def check() -> None:
        assert (loop_thread.worked, loop_thread.closed, loop_thread.has_ended) == (1, 1, True)

    return Scene(loop_thread._run, loop_thread._run, check)


@SCENES.add
def worker_is_dismissed_while_its_thread_starts(switcher: Switcher) -> Scene:
    loop_thread = LoopThread(BackgroundLoop())

    def check() -> None:
        assert (loop_thread.closed, loop_thread.has_ended) == (1, True)
        assert loop_thread.worked == 0 or loop_thread.has_left

    return Scene(loop_thread._run, loop_thread.dismiss, check)


@SCENES.add
def thread_dies_while_a_lease_is_added(switcher: Switcher) -> Scene:
    """Without ``leave``: an interruption has ended its event loop."""
    lease_loop, lease = BackgroundLoop(), Lease()
    loop_thread = loop_thread_of(lease_loop)

    def check() -> None:
        assert loop_thread.has_ended
        assert loop_thread_of(lease_loop) is not loop_thread
        assert lease.wakes_in_time(lease_loop)

    return Scene(lambda: lease_loop.renewer.add(lease.watch), loop_thread._run, check)


@SCENES.add
def next_worker_starts_while_the_former_ends(switcher: Switcher) -> Scene:
    lease_loop, waiting = BackgroundLoop(), SubscriberWithWaiter()
    previous = loop_thread_of(lease_loop)
    lease_loop.wanted.add(waiting)
    lease_loop.retire(previous)
    after = loop_thread_of(lease_loop)
    after._pause = lambda seconds: switcher.pause()  # type: ignore[method-assign]
    order: list[str] = []
    previous._clean_up = lambda: order.append("closed")  # type: ignore[method-assign]
    after.work = lambda: order.append("works")

    def check() -> None:
        assert order == ["closed", "works"]
        loop_thread = loop_thread_of(lease_loop)
        loop_thread.run_pending()
        assert waiting.is_open

    return Scene(after._run, previous._run, check)


@SCENES.add
def slot_is_emptied_while_another_thread_replaces_its_object(switcher: Switcher) -> Scene:
    slot: AtomicSlot[str] = AtomicSlot()
    slot.setdefault("first")

    def replace() -> None:
        slot.remove("first")
        slot.setdefault("second")

    def check() -> None:
        assert slot.get() == "second"

    return Scene(lambda: slot.remove("first"), replace, check)


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_requested_work_is_done_with_thread_switches_at_any_line(
    scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_loop, "LoopThread", LoopThread)

    assert SCENES.explore(scene) > 5
