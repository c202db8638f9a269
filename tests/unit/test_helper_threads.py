"""Threads for what the background must not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from support.leftovers import PATIENCE, own_threads

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background import helper_threads as crews
from redis_lock_decorators._io.background.helper_threads import HelperThreads


def waits_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE * 200)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


@pytest.fixture
def helper_threads() -> Iterator[HelperThreads]:
    helper_threads = HelperThreads("test", 3)
    yield helper_threads
    waits_for(lambda: not any("test" in name for name in own_threads()))


def full(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_calls_are_made_though_others_take_for_ever(helper_threads: HelperThreads) -> None:
    hang, told = threading.Event(), threading.Event()

    helper_threads.call(hang.wait)
    helper_threads.call(hang.wait)
    helper_threads.call(told.set)

    assert told.wait(PATIENCE)
    hang.set()


def test_there_are_only_so_many_threads(helper_threads: HelperThreads) -> None:
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


def test_one_thread_keeps_their_order() -> None:
    helper_threads, made, done = HelperThreads("test", 1), [], threading.Event()

    for number in range(100):
        helper_threads.call(lambda number=number: made.append(number))  # type: ignore[misc]
    helper_threads.call(done.set)

    assert done.wait(PATIENCE)
    assert made == list(range(100))


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_what_no_thread_can_be_started_for_is_not_lost(
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
def test_call_that_ends_its_thread_ends_no_other(helper_threads: HelperThreads) -> None:
    alone, done, hang = HelperThreads("test", 1), threading.Event(), threading.Event()

    def end() -> None:
        hang.wait(PATIENCE)
        raise SystemExit

    alone.call(end)
    alone.call(done.set)
    hang.set()

    assert done.wait(PATIENCE)


def test_child_makes_its_own_calls_alone(
    helper_threads: HelperThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        helper_threads.call(lambda: made.append("the parent's"))
    done = threading.Event()

    with monkeypatch.context() as patch:
        patch.setattr(fork, "number", fork.number + 1)
        helper_threads.begin()
        assert len(helper_threads) == 0
        helper_threads.call(done.set)
        assert done.wait(PATIENCE)
        waits_for(lambda: not any("test" in name for name in own_threads()))

    assert made == []


def test_threads_that_ended_with_their_hub_are_no_others(
    helper_threads: HelperThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A greenlet that waits is gone with its native thread, and says nothing."""
    here, hang = threading.local(), threading.Event()
    monkeypatch.setattr(crews, "hub", lambda: getattr(here, "hub", "main"))

    def job() -> None:
        here.hub = "that of a job"
        for _ in range(3):
            helper_threads.call(lambda: hang.wait(PATIENCE))

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    told = threading.Event()
    helper_threads.call(told.set)

    assert told.wait(PATIENCE)
    assert not helper_threads.is_stuck()
    hang.set()
