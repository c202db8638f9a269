"""Whether a thread waits for other threads only: then virtual time may jump."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from redis_lock_decorators.testing.fake.thread_states import is_waiting


@contextmanager
def running(work: Callable[[], object]) -> Iterator[int]:
    """The identifier of a thread that works."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert thread.ident is not None
    yield thread.ident


def settles(number: int, expected: bool) -> bool:
    """Whether a thread is soon in the expected state."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        frames = sys._current_frames()
        del frames[threading.get_ident()]
        if is_waiting(frames[number], {threading.get_ident(), *frames}) is expected:
            return True
        time.sleep(0.001)
    return False


@pytest.mark.parametrize(
    "work",
    [
        threading.Event().wait,
        queue.Queue().get,
        Future().result,
        threading.Barrier(2).wait,
        threading.main_thread().join,
    ],
    ids=["event", "queue", "future", "barrier", "join"],
)
def test_waits_for_other_threads(work: Callable[[], object]) -> None:
    with running(work) as number:
        assert settles(number, True)


@pytest.mark.parametrize(
    "work",
    [
        lambda: threading.Event().wait(60),
        lambda: queue.Queue().get(timeout=7200),  # longer than the tests: its end raises
        lambda: threading.main_thread().join(60),
        lambda: time.sleep(60),
    ],
    ids=["event", "queue", "join", "sleep"],
)
def test_waits_in_real_time(work: Callable[[], object]) -> None:
    with running(work) as number:
        time.sleep(0.01)
        assert settles(number, False)


def test_thread_that_was_notified_does_not_wait() -> None:
    noticed: list[bool] = []
    event = threading.Event()

    with running(event.wait) as number:
        assert settles(number, True)
        former = sys.getswitchinterval()
        sys.setswitchinterval(10)  # the other thread does not run before it is looked at
        try:
            event.set()
            noticed.append(is_waiting(sys._current_frames()[number], {number}))
        except KeyError:  # it has ended all the same
            noticed.append(False)
        finally:
            sys.setswitchinterval(former)

    assert noticed == [False]


def test_idle_thread_of_a_pool_waits() -> None:
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(threading.get_ident).result()

        assert settles(number, True)
