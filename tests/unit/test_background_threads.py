"""Losses are reported and messages logged without blocking the background worker."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator

import pytest
from support.lease_loops import WORKERS, LeaseLoop, lease_loop_of
from support.leftovers import PATIENCE
from support.waiting import until

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background import helper_threads, hub_threads, log_thread
from redis_lock_decorators._io.transport.thread_calls import in_thread

#: Some tests end a thread of the package by an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(params=WORKERS)
def lease_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LeaseLoop]:
    yield from lease_loop_of(request.param, monkeypatch)


def test_loss_is_reported_when_a_thread_can_be_started_again(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, start, refused = threading.Event(), threading.Thread.start, []

    def full(thread: threading.Thread) -> None:
        if "on_lost" in thread.name and len(refused) < 3:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    monkeypatch.setattr(hub_threads, "RETRY", 0.001)
    # as the renewer does after its last lease
    lease_loop.renewer.at_tick = lambda: lease_loop.wake_at(math.inf)

    lease_loop.call(lambda: helper_threads.loss_threads.call(reported.set))

    assert reported.wait(PATIENCE)
    until(lambda: lease_loop.current_worker() is None)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseLoop]:
    """A loop whose worker runs, while no other thread can be started."""
    lease_loop, started = LeaseLoop(), threading.Event()
    lease_loop.renewer.leases = 1
    lease_loop.call(started.set)
    assert started.wait(PATIENCE)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        yield lease_loop
    lease_loop.end()


def test_losses_are_reported_without_a_new_thread(limited: LeaseLoop) -> None:
    reported = [threading.Event() for _ in range(3)]

    for one in reported:
        limited.call(lambda one=one: helper_threads.loss_threads.call(one.set))  # type: ignore[misc]

    assert all(one.wait(PATIENCE) for one in reported)


def test_connections_are_opened_without_a_new_thread(limited: LeaseLoop) -> None:
    results: list[int] = []
    done = threading.Event()

    async def work() -> None:
        for number in range(3):
            results.append(await in_thread(lambda number=number: number))  # type: ignore[misc]
        done.set()

    limited.call(lambda: limited.start(work()))

    assert done.wait(PATIENCE)
    assert results == [0, 1, 2]


def test_loss_is_reported_while_a_connection_attempt_hangs(limited: LeaseLoop) -> None:
    hang, reported = threading.Event(), threading.Event()

    async def work() -> None:
        await in_thread(lambda: hang.wait(PATIENCE))

    limited.call(lambda: limited.start(work()))
    limited.call(lambda: helper_threads.loss_threads.call(reported.set))

    assert reported.wait(PATIENCE)
    hang.set()


def test_more_threads_start_if_all_reports_hang(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_threads, "RETRY", 0.001)
    hanging, reported, many = helper_threads.HelperThreads("on_lost", 3, 0.05), threading.Event(), 8
    begun: list[None] = []

    def hang() -> None:
        begun.append(None)
        if len(begun) == many:
            reported.set()
        reported.wait(PATIENCE)

    lease_loop.renewer.at_tick = hanging.begin
    for _ in range(many):
        lease_loop.call(lambda: hanging.call(hang))

    assert reported.wait(PATIENCE)
    until(hanging.is_idle)


class SlowHandler(logging.Handler):
    """Waits in ``emit`` until the test lets it continue."""

    def __init__(self) -> None:
        super().__init__()
        self.may_continue = threading.Event()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert self.may_continue.wait(PATIENCE)
        self.messages.append(record.getMessage())


@pytest.fixture
def slow() -> Iterator[SlowHandler]:
    handler, logger = SlowHandler(), logging.getLogger("redis_lock_decorators")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    handler.may_continue.set()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_log_handler_that_waits_does_not_block_the_worker(
    lease_loop: LeaseLoop, slow: SlowHandler
) -> None:
    continued: list[bool] = []
    done = threading.Event()

    async def work() -> None:
        log.info("two")
        raise ValueError("three")

    def fail() -> None:
        raise ValueError

    def end() -> None:
        continued.append(not slow.messages)
        slow.may_continue.set()
        done.set()

    lease_loop.call(lambda: log.warning("%s", "one"))
    lease_loop.call(fail)
    lease_loop.call(lambda: lease_loop.start(work(), lambda: lease_loop.call(end)))
    assert done.wait(PATIENCE)
    assert log_thread.flush(PATIENCE)

    assert continued == [True]
    assert slow.messages[0] == "one"
    assert "two" in slow.messages
    assert "three" in slow.messages[-1]


def test_worker_ends_after_logging(lease_loop: LeaseLoop) -> None:
    def end() -> None:
        log.info("last")
        lease_loop.stop_if_idle()

    lease_loop.call(end)

    until(lambda: lease_loop.current_worker() is None)


def test_messages_beyond_a_limit_are_dropped_and_counted(
    lease_loop: LeaseLoop, slow: SlowHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    def say() -> None:
        monkeypatch.setattr(log_thread, "MOST_WAITING", 3)
        for number in range(10):
            log.warning("%s", number)
        done.set()

    lease_loop.call(lambda: log.warning("first"))
    until(
        lambda: not len(helper_threads.log_records) and not helper_threads.log_records.is_idle()
    )  # the handler has the first one
    lease_loop.call(say)
    assert done.wait(PATIENCE)
    slow.may_continue.set()
    assert log_thread.flush(PATIENCE)

    kept = [message for message in slow.messages if "dropped" not in message]
    assert kept == ["first", "0", "1", "2"]
    assert "7 messages about locks were dropped: a log handler is slow" in slow.messages
