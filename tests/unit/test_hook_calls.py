"""Hooks are called in order on one thread, and can neither break nor delay what causes events."""

from __future__ import annotations

import logging
import multiprocessing
import pathlib
import threading
import time
from collections.abc import Iterator
from contextvars import Context, ContextVar
from typing import Any

import pytest
from support.waiting import until

from redis_lock_decorators._io.background import helper_threads, hook_calls
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._rules.rate_limit import RateLimit
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.events import log_events

variable: ContextVar[str] = ContextVar("variable", default="")


@pytest.fixture(autouse=True)
def new_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hook_calls, "_failures", RateLimit(hook_calls.LOG_PERIOD))
    monkeypatch.setattr(hook_calls, "_drops", RateLimit(hook_calls.LOG_PERIOD))
    yield
    assert hook_calls.flush(20)


def report(*hooks: Any, event: object = "event", context: Context | None = None) -> None:
    hook_calls.report(hooks, context or Context(), lambda: [event])


def test_events_are_reported_in_order_on_one_other_thread() -> None:
    seen: list[Any] = []
    threads = set()

    def hook(event: int) -> None:
        seen.append(event)
        threads.add(threading.current_thread().name)

    for number in range(1000):
        report(hook, event=number)

    assert hook_calls.flush(20)
    assert seen == list(range(1000))
    assert len(threads) == 1
    assert threads != {threading.current_thread().name}


def test_thread_waits_for_further_events_and_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    calls = helper_threads.HelperThreads("test", 1, linger=0.2)

    for _ in range(3):
        calls.call(lambda: threads.append(threading.current_thread()))
        time.sleep(0.02)

    until(lambda: not threads[-1].is_alive())
    assert len(set(threads)) <= 2  # more only on a machine that stops this thread
    assert calls.is_idle()


def test_exception_of_a_hook_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def failing(_: object) -> None:
        raise SystemExit("a mistake")

    for number in range(5):
        report(failing, seen.append, event=number)

    assert hook_calls.flush(20)
    assert seen == list(range(5))
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "failing" in record.getMessage()
    assert record.exc_info is not None


def test_hook_is_called_in_the_given_context() -> None:
    seen: list[Any] = []
    context = Context()
    context.run(variable.set, "of the caller")

    report(lambda _: seen.append(variable.get()), context=context)
    report(lambda _: seen.append(variable.get()))

    assert hook_calls.flush(20)
    assert seen == ["of the caller", ""]


def test_hook_is_called_while_its_context_is_entered_elsewhere() -> None:
    seen: list[Any] = []
    context = Context()
    context.run(variable.set, "")  # an empty one would be replaced

    def work() -> None:
        report(seen.append, context=context)
        assert hook_calls.flush(20)

    context.run(work)

    assert seen == ["event"]


def test_hook_that_hangs_delays_nothing_and_drops_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hang, begun = threading.Event(), threading.Event()
    seen: list[Any] = []

    def hanging(event: object) -> None:
        seen.append(event)
        begun.set()
        hang.wait(20)

    report(hanging, event=-1)
    assert begun.wait(20)
    for number in range(hook_calls.MOST_WAITING + 50):
        report(hanging, event=number)

    assert len(helper_threads.hook_threads) == hook_calls.MOST_WAITING
    assert not hook_calls.flush(0.01)
    hang.set()
    assert hook_calls.flush(20)
    assert len(seen) == hook_calls.MOST_WAITING + 1
    until(lambda: any("events about locks were dropped" in text for text in caplog.messages))


def test_events_of_locks_that_a_hook_uses_are_not_reported() -> None:
    seen: list[Any] = []

    def hook(event: object) -> None:
        seen.append(event)
        report(hook, event="of the hook")

    report(hook, event="of the program")

    assert hook_calls.flush(20)
    assert seen == ["of the program"]


class Appending:
    """A slow hook that appends events to a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __call__(self, event: object) -> None:
        threading.Event().wait(0.05)  # the process ends in the meantime
        with self.path.open("a") as file:
            file.write(f"{event} ")


def report_in_child(path: pathlib.Path) -> None:
    report(Appending(path), event="first")
    report(Appending(path), event="last")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_last_events_of_a_child_of_multiprocessing_are_reported(
    tmp_path: pathlib.Path, method: str
) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    path = tmp_path / "events"
    child: Any = multiprocessing.get_context(method)
    child = child.Process(target=report_in_child, args=(path,))

    child.start()
    child.join(60)

    assert child.exitcode == 0
    assert path.read_text().split() == ["first", "last"]


# The option


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        (log_events, "give a list of functions, as in hooks=[log_events]"),
        (iter([log_events]), "give a list of functions"),
        ([3], "3 cannot be called"),
        ([lambda: None], "does not take the event as its one argument"),
        ([lambda event, more: None], "does not take the event as its one argument"),
    ],
)
def test_unusable_hooks_are_refused(hooks: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match="hooks") as refused:
        Options(hooks=hooks)

    assert problem in str(refused.value)


def test_async_hook_is_refused_as_its_body_would_not_run() -> None:
    async def hook(_: object) -> None:
        """Never awaited."""

    with pytest.raises(ConfigurationError, match="is an async function"):
        Options(hooks=[hook])


def test_hooks_are_stored_as_a_tuple_and_kept_from_the_renewer() -> None:
    options = Options(hooks=[log_events, print])

    assert options.hooks == (log_events, print)
    assert options.of_renewal.hooks == ()
