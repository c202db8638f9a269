"""Helper threads make calls in order, however long a call takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from support.interruptions import Interrupted, Interruption, interrupt_every_line
from support.leftovers import PATIENCE, own_threads
from support.waiting import until

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background import helper_threads as module
from redis_lock_decorators._io.background import hub_threads
from redis_lock_decorators._io.background.helper_threads import HelperThreads


@pytest.fixture
def helper_threads() -> Iterator[HelperThreads]:
    helper_threads = HelperThreads("test", 3)
    yield helper_threads
    until(lambda: not any("test" in name for name in own_threads()))


def full(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_calls_are_made_while_others_hang(helper_threads: HelperThreads) -> None:
    hang, called = threading.Event(), threading.Event()

    helper_threads.call(hang.wait)
    helper_threads.call(hang.wait)
    helper_threads.call(called.set)

    assert called.wait(PATIENCE)
    hang.set()


def test_number_of_threads_is_limited(helper_threads: HelperThreads) -> None:
    hang, begun = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        begun.release()
        hang.wait(PATIENCE)

    for _ in range(50):
        helper_threads.call(call)

    for _ in range(3):
        assert begun.acquire(timeout=PATIENCE)
    assert len(helper_threads) == 47
    assert len([name for name in own_threads() if "test" in name]) == 3
    hang.set()
    for _ in range(47):
        assert begun.acquire(timeout=PATIENCE)


def test_single_thread_makes_calls_in_order() -> None:
    helper_threads, made, done = HelperThreads("test", 1), [], threading.Event()

    for number in range(100):
        helper_threads.call(lambda number=number: made.append(number))  # type: ignore[misc]
    helper_threads.call(done.set)

    assert done.wait(PATIENCE)
    assert made == list(range(100))


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_call_without_a_thread_is_made_later(
    helper_threads: HelperThreads, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    first, second = threading.Event(), threading.Event()

    def fail(_: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        helper_threads.call(first.set)
        assert helper_threads.is_stuck()
    helper_threads.call(second.set)

    assert first.wait(PATIENCE)
    assert second.wait(PATIENCE)
    assert not helper_threads.is_stuck()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_call_that_ends_its_thread_does_not_stop_the_others(helper_threads: HelperThreads) -> None:
    alone, done, hang = HelperThreads("test", 1), threading.Event(), threading.Event()

    def end() -> None:
        hang.wait(PATIENCE)
        raise SystemExit

    alone.call(end)
    alone.call(done.set)
    hang.set()

    assert done.wait(PATIENCE)


def test_forked_child_does_not_make_calls_of_its_parent(
    helper_threads: HelperThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        helper_threads.call(lambda: made.append("the parent's"))
    done = threading.Event()

    with monkeypatch.context() as patch:
        patch.setattr(fork, "process_id", fork.process_id + 1)
        helper_threads.begin()
        assert len(helper_threads) == 0
        helper_threads.call(done.set)
        assert done.wait(PATIENCE)
        until(lambda: not any("test" in name for name in own_threads()))

    assert made == []


def test_threads_that_ended_with_their_hub_are_not_counted(
    helper_threads: HelperThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting greenlet ends with its native thread, without any notice."""
    current, hang = threading.local(), threading.Event()
    monkeypatch.setattr(module, "hub", lambda: getattr(current, "hub", "main"))

    def job() -> None:
        current.hub = "of a job"
        for _ in range(3):
            helper_threads.call(lambda: hang.wait(PATIENCE))

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    called = threading.Event()
    helper_threads.call(called.set)

    assert called.wait(PATIENCE)
    assert not helper_threads.is_stuck()
    hang.set()


# Exceptions of signal handlers


class Overlaps:
    """A call that records how many run at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.made: list[int] = []

    def __call__(self, number: int) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        threading.Event().wait(0.001)  # another thread can run
        self.made.append(number)
        self.running -= 1

    def assert_in_order(self, helper_threads: HelperThreads, before: Sequence[int] = ()) -> None:
        done = threading.Event()
        for number in range(30):
            helper_threads.call(lambda number=number: self(number))  # type: ignore[misc]
        helper_threads.call(done.set)

        assert done.wait(PATIENCE)
        assert self.made == [*before, *range(30)]
        assert self.most == 1


def interrupted_before(_: threading.Thread) -> None:
    raise Interrupted


def interrupted_after(thread: threading.Thread, start: object = threading.Thread.start) -> None:
    start(thread)  # type: ignore[operator]
    raise Interrupted


@pytest.mark.parametrize("linger", [0.0, 0.05])
@pytest.mark.parametrize("start", [interrupted_before, interrupted_after])
def test_interrupted_start_leaves_one_thread(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[threading.Thread], None], linger: float
) -> None:
    helper_threads, hang = HelperThreads("test", 1, linger=linger), threading.Event()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(3):
            with contextlib.suppress(Interrupted):
                helper_threads.call(lambda: hang.wait(PATIENCE))
    hang.set()

    Overlaps().assert_in_order(helper_threads)
    until(lambda: helper_threads.is_idle())


@pytest.mark.parametrize("linger", [0.0, 0.005])
def test_start_that_is_interrupted_at_any_line_leaves_one_thread(linger: float) -> None:
    def work(interruption: Interruption) -> None:
        helper_threads = HelperThreads("test", 1, linger=linger)
        try:
            with interruption:
                helper_threads.call(lambda: None)
        finally:
            Overlaps().assert_in_order(helper_threads)

    assert interrupt_every_line(work) > 10


def test_queued_call_is_made_though_the_start_of_its_thread_is_interrupted() -> None:
    def work(interruption: Interruption) -> None:
        helper_threads, called = HelperThreads("test", 1), threading.Event()
        try:
            with interruption:
                helper_threads.call(called.set)
        finally:
            is_queued = len(helper_threads) or called.is_set()
            assert called.wait(PATIENCE if is_queued else 0) == bool(is_queued)

    assert interrupt_every_line(work) > 10


def test_thread_that_ends_without_notice_is_replaced() -> None:
    """A signal handler may raise an exception in a greenlet that ends."""
    helper_threads = HelperThreads("test", 1)
    helper_threads.call(lambda: None)
    until(helper_threads.is_idle)
    (threads,) = helper_threads._by_hub.values()
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    threads._serving[object()] = partial(hub_threads._is_active, ended)

    Overlaps().assert_in_order(helper_threads)


@pytest.mark.parametrize("linger", [0.0, 0.05])
def test_running_thread_that_python_calls_stopped_is_counted(
    monkeypatch: pytest.MonkeyPatch, linger: float
) -> None:
    """CPython 3.10 to 3.12 do so if a signal handler's exception interrupts ``is_alive``."""
    helper_threads, overlaps = HelperThreads("test", 1, linger=linger), Overlaps()
    running, begun, hang = [], threading.Event(), threading.Event()

    def call() -> None:
        running.append(threading.current_thread())
        begun.set()
        hang.wait(PATIENCE)

    helper_threads.call(call)
    assert begun.wait(PATIENCE)
    is_alive = threading.Thread.is_alive

    with monkeypatch.context() as patch:
        patch.setattr(
            threading.Thread, "is_alive", lambda self: self not in running and is_alive(self)
        )
        helper_threads.call(lambda: overlaps(-2))
        helper_threads.call(lambda: overlaps(-1))
        hang.set()
        overlaps.assert_in_order(helper_threads, [-2, -1])


def test_thread_that_threading_does_not_know_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    helper_threads, overlaps = HelperThreads("test", 1), Overlaps()

    with monkeypatch.context() as patch:
        patch.setattr(hub_threads, "_is_active", lambda _: False)
        overlaps.assert_in_order(helper_threads)
