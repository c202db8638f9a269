"""The background worker of threads starts, ends, and is replaced if it dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.lease_loops import WORKERS, LeaseLoop, Wanted, kill_worker, lease_loop_of
from support.leftovers import PATIENCE
from support.simulation import new_claim
from support.waiting import until

from redis_lock_decorators._io.background import thread_checks
from redis_lock_decorators._io.background import worker as workers
from redis_lock_decorators._io.background.worker import BackgroundWorker
from redis_lock_decorators.errors import ConfigurationError, LockError

#: Some tests end a thread of the package by an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(params=WORKERS)
def lease_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LeaseLoop]:
    yield from lease_loop_of(request.param, monkeypatch)


def test_first_call_starts_a_worker_that_ends_when_idle(lease_loop: LeaseLoop) -> None:
    called = threading.Event()

    lease_loop.call(called.set)
    assert called.wait(PATIENCE)
    lease_loop.end()

    assert lease_loop.current_worker() is None


def test_worker_does_not_stop_while_there_is_work(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    rested = threading.Event()

    lease_loop.call(lease_loop.stop_if_idle)
    lease_loop.call(rested.set)

    assert rested.wait(PATIENCE)
    assert not lease_loop.worker.has_ended


@pytest.mark.parametrize(("needed", "ended"), [(True, True), (True, False), (False, True)])
def test_worker_does_not_stop_where_no_other_can_be_started(
    lease_loop: LeaseLoop, needed: bool, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12.0 and 3.12.1 start no thread after the main thread has ended."""
    rested = threading.Event()
    lease_loop.call(lambda: None)
    worker = lease_loop.worker
    monkeypatch.setattr(workers, "NEEDS_MAIN_THREAD", needed)
    with monkeypatch.context() as patched:
        patched.setattr(threading.main_thread(), "is_alive", lambda: not ended)
        lease_loop.call(lease_loop.stop_if_idle)
        lease_loop.call(rested.set)
        assert rested.wait(PATIENCE)

        assert (lease_loop.current_worker() is worker) == (needed and ended)


def test_worker_that_dies_is_replaced_without_a_call(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    subscriber = Wanted(lease_loop)
    lease_loop.call(lambda: None)

    dead = kill_worker(lease_loop)

    assert subscriber.opened.wait(PATIENCE)
    assert lease_loop.renewer.ticked.wait(PATIENCE)
    assert lease_loop.renewer.forgotten > 0
    assert lease_loop.worker is not dead


def test_worker_that_is_stopped_is_replaced(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    lease_loop.call(lambda: None)
    worker = lease_loop.worker

    worker.stop()
    until(lambda: worker.has_ended)

    assert lease_loop.renewer.ticked.wait(PATIENCE)
    assert lease_loop.worker is not worker


def test_failing_tick_or_call_does_not_end_the_worker(lease_loop: LeaseLoop) -> None:
    def fail() -> None:
        raise ValueError

    called = threading.Event()
    lease_loop.renewer.at_tick = fail
    lease_loop.wake_at(lease_loop.now())
    assert lease_loop.renewer.ticked.wait(PATIENCE)
    worker = lease_loop.worker

    worker.call(called.set)

    assert called.wait(PATIENCE)
    assert lease_loop.worker is worker


def test_next_worker_starts_after_the_previous_one(lease_loop: LeaseLoop) -> None:
    is_over, began, order = threading.Event(), threading.Event(), []
    lease_loop.call(lambda: None)
    first = lease_loop.worker
    clean_up = first._clean_up

    def slow() -> None:
        assert began.wait(PATIENCE)
        clean_up()
        order.append("end")

    def go() -> None:
        order.append("begin")
        is_over.set()

    first._clean_up = slow  # type: ignore[method-assign]
    lease_loop.call(lease_loop.stop_if_idle)
    until(lambda: lease_loop.current_worker() is None)
    lease_loop.call(go)
    began.set()

    assert is_over.wait(PATIENCE)
    assert order == ["end", "begin"]


def test_thread_that_cannot_start_is_started_later(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(workers.WorkerThread, "start", full)
        lease_loop.call(called.set)
    assert not called.is_set()
    assert lease_loop.renewer.forgotten == 1  # so that the next lease asks for a thread
    with pytest.raises(LockError, match="'a' was not acquired, as no thread can be started"):
        lease_loop.refuse_unrenewed(new_claim("a"))

    lease_loop.begin()  # as a waiter does

    assert called.wait(PATIENCE)
    lease_loop.start_error = "can't start new thread"  # as set by an attempt that failed meanwhile
    lease_loop.refuse_unrenewed(new_claim("a"))


def test_second_thread_of_a_worker_returns(lease_loop: LeaseLoop) -> None:
    lease_loop.call(lambda: None)
    worker, calls = lease_loop.worker, []
    done = threading.Event()

    worker._run()  # as a second thread would
    worker.call(lambda: calls.append(1))
    worker.call(done.set)

    assert done.wait(PATIENCE)
    assert calls == [1]
    assert not worker.has_ended


class Dying:
    """Ends the thread of a worker at a given line of its target."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0
        self.dead: list[threading.Thread] = []

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if frame.f_code is not BackgroundWorker._run.__code__:
            return None
        self.count += event == "line"
        if event == "line" and self.count == self.at:
            self.dead.append(threading.current_thread())
            raise SystemExit
        return self


def test_thread_interrupted_at_any_line_is_replaced(lease_loop: LeaseLoop) -> None:
    """Even right after it set its token."""
    for at in range(1, 20):
        first, second, dying = threading.Event(), threading.Event(), Dying(at)
        threading.settrace(dying)
        lease_loop.call(first.set)
        until(lambda: bool(dying.dead) or first.is_set())  # noqa: B023  # same iteration
        threading.settrace(None)  # type: ignore[arg-type]
        dying.at = 0
        for thread in dying.dead:
            thread.join(PATIENCE)
        lease_loop.call(second.set)
        assert second.wait(PATIENCE), at
        lease_loop.end()
        if not dying.dead:
            break
    assert at > 2


def test_worker_that_ends_begins_no_renewals(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop runs once more to end its tasks, and its timer may be due."""
    ticks: list[int] = []
    monkeypatch.setattr(lease_loop.renewer, "tick", lambda: ticks.append(1))
    lease_loop.call(lambda: None)
    worker = lease_loop.worker

    lease_loop.retire(worker)
    worker._tick()

    assert ticks == []


def test_call_to_an_ending_worker_is_not_lost(lease_loop: LeaseLoop) -> None:
    lease_loop.call(lambda: None)
    worker = lease_loop.worker
    subscribers: list[Wanted] = []
    retire = lease_loop.retire

    def late(ending: BackgroundWorker) -> None:
        retire(ending)
        if ending is worker and not subscribers:  # another thread has just looked it up
            subscribers.append(Wanted(lease_loop))
            worker.call(subscribers[0].open)

    lease_loop.retire = late  # type: ignore[method-assign]
    kill_worker(lease_loop)

    until(lambda: bool(subscribers))
    assert subscribers[0].opened.wait(PATIENCE)


def test_loop_of_the_parent_does_nothing_in_a_child(lease_loop: LeaseLoop) -> None:
    lease_loop.process -= 1

    lease_loop.call(lambda: None)
    lease_loop.wake_at(lease_loop.now())

    assert lease_loop.current_worker() is None
    lease_loop.process += 1


def test_interpreter_without_daemon_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("daemon threads are disabled in this (sub)interpreter")

    monkeypatch.setattr(thread_checks, "_probe", None)
    monkeypatch.setattr(threading, "Thread", refuse)
    lease_loop = LeaseLoop()

    for ask in (lease_loop.check, lambda: lease_loop.call(print)):
        with pytest.raises(ConfigurationError, match="in this interpreter"):
            ask()
