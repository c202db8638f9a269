"""A spare thread runs calls when no thread can be started."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.leftovers import PATIENCE

from redis_lock_decorators._io.background.spare_thread import SpareThread


@pytest.fixture(params=[True, False], ids=["queues", "refuses"])
def spare(request: pytest.FixtureRequest) -> Iterator[SpareThread]:
    spare = SpareThread("test spare", queues=request.param)
    spare.begin()
    yield spare
    spare.end()


def test_call_during_another_is_queued_or_refused(spare: SpareThread) -> None:
    begun, hang, done = threading.Event(), threading.Event(), threading.Event()

    assert spare.call(lambda: (begun.set(), hang.wait(PATIENCE)))
    assert begun.wait(PATIENCE)
    assert spare.call(done.set) == spare._queues
    hang.set()

    assert done.wait(PATIENCE if spare._queues else 0) == spare._queues


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_thread_survives_a_call_that_fails(spare: SpareThread, error: type[BaseException]) -> None:
    failed, done = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise error

    assert spare.call(fail)
    assert failed.wait(PATIENCE)
    while not spare.call(done.set):
        pass

    assert done.wait(PATIENCE)


def test_thread_ends_after_its_queued_calls() -> None:
    spare, threads = SpareThread("test spare", queues=True), []
    spare.begin()

    assert spare.call(lambda: threads.append(threading.current_thread()))
    spare.end()

    for thread in threading.enumerate():
        if thread.name == "test spare":
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert len(threads) == 1


def test_calls_are_refused_until_the_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    spare = SpareThread("test spare", queues=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        assert not spare.call(print)

    done = threading.Event()
    assert spare.call(done.set)
    assert done.wait(PATIENCE)
    spare.end()
