"""The background of threads comes, goes, dies and comes again, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._io.background import helper_threads, log_thread
from redis_lock_decorators._io.background import worker as workers
from redis_lock_decorators._io.background.greenlets import GreenletWorker
from redis_lock_decorators._io.background.loop_thread import LoopThread
from redis_lock_decorators._io.background.loops import BackgroundLoop, CallerLoop
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.background.worker import BackgroundWorker
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.transport.background_client import in_thread
from redis_lock_decorators.errors import ConfigurationError, LockError

#: Seconds for what happens at once, on a busy machine.
PATIENCE = 20
#: A thread of ours that dies is what some tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
request: ContextVar[object] = ContextVar("request", default=None)


class Renewer:
    """Counts what it is asked for; it has ``leases`` to look after."""

    def __init__(self) -> None:
        self.leases = 0
        self.muted = 0
        self.ticked = threading.Event()
        self.at_tick: Callable[[], object] = lambda: None

    def __len__(self) -> int:
        return self.leases

    def forget_wake_up(self) -> None:
        self.muted += 1

    def tick(self) -> None:
        self.ticked.set()
        self.at_tick()


class Wanted:
    """A listener that somebody waits for."""

    def __init__(self, lease_loop: BackgroundLoop) -> None:
        self.opened = threading.Event()
        lease_loop.wanted.add(self)

    def open(self) -> None:
        self.opened.set()


class LeaseLoop(BackgroundLoop):
    """A bell whose keeper is a test's."""

    renewer: Any

    def __init__(self) -> None:
        super().__init__()
        self.renewer = Renewer()

    @property
    def worker(self) -> BackgroundWorker:
        worker = self.current_worker()
        assert worker is not None
        return worker

    def ends(self) -> None:
        """Have it rest, and wait until nothing is there."""
        worker, self.renewer.leases = self.current_worker(), 0
        if worker is not None:
            self.call(self.wanted.clear)
            self.call(self.stop_if_idle)
            waits_for(lambda: worker.has_ended)


def waits_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(PATIENCE * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


@pytest.fixture(params=[LoopThread, GreenletWorker])
def lease_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LeaseLoop]:
    """A bell with each kind of place: on an event loop, and without."""
    is_green = request.param is GreenletWorker
    for name in ("background.loops", "background.hubs", "background.loop_thread"):
        module = f"redis_lock_decorators._io.{name}.are_threads_green"
        monkeypatch.setattr(module, lambda: is_green)
    monkeypatch.setattr(helper_threads, "hub", lambda: 0)  # these are real threads, and have none
    lease_loop = LeaseLoop()
    yield lease_loop
    lease_loop.ends()


def dies(lease_loop: LeaseLoop) -> BackgroundWorker:
    """End the thread by an exception that nobody expects; the place that it was."""
    worker = lease_loop.worker

    def die() -> None:
        raise SystemExit

    worker.call(die)
    waits_for(lambda: worker.has_ended)
    return worker


def test_first_call_makes_a_place_and_rest_ends_it(lease_loop: LeaseLoop) -> None:
    called = threading.Event()

    lease_loop.call(called.set)
    assert called.wait(PATIENCE)
    lease_loop.ends()

    assert lease_loop.current_worker() is None


def test_place_stays_while_there_is_something_to_do(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    rested = threading.Event()

    lease_loop.call(lease_loop.stop_if_idle)
    lease_loop.call(rested.set)

    assert rested.wait(PATIENCE)
    assert not lease_loop.worker.has_ended


def test_place_that_dies_is_followed_without_being_called(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    subscriber = Wanted(lease_loop)
    lease_loop.call(lambda: None)

    dead = dies(lease_loop)

    assert subscriber.opened.wait(PATIENCE)
    assert lease_loop.renewer.ticked.wait(PATIENCE)
    assert lease_loop.renewer.muted > 0
    assert lease_loop.worker is not dead


def test_place_whose_event_loop_is_stopped_is_followed(lease_loop: LeaseLoop) -> None:
    lease_loop.renewer.leases = 1
    lease_loop.call(lambda: None)
    worker = lease_loop.worker

    worker.stop()
    waits_for(lambda: worker.has_ended)

    assert lease_loop.renewer.ticked.wait(PATIENCE)
    assert lease_loop.worker is not worker


def test_failing_tick_or_call_ends_nothing(lease_loop: LeaseLoop) -> None:
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


def test_next_place_begins_when_the_one_before_has_ended(lease_loop: LeaseLoop) -> None:
    is_over, began, order = threading.Event(), threading.Event(), []
    lease_loop.call(lambda: None)
    first = lease_loop.worker
    dismantle = first._clean_up

    def slow() -> None:
        assert began.wait(PATIENCE)
        dismantle()
        order.append("end")

    def go() -> None:
        order.append("begin")
        is_over.set()

    first._clean_up = slow  # type: ignore[method-assign]
    lease_loop.call(lease_loop.stop_if_idle)
    waits_for(lambda: lease_loop.current_worker() is None)
    lease_loop.call(go)
    began.set()

    assert is_over.wait(PATIENCE)
    assert order == ["end", "begin"]


def test_thread_that_cannot_start_once_is_started_later(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(workers.WorkerThread, "start", full)
        lease_loop.call(called.set)
    assert not called.is_set()
    assert lease_loop.renewer.muted == 1  # so that the next lease rings

    lease_loop.begin()  # as who waits does

    assert called.wait(PATIENCE)


def test_loss_is_told_as_soon_as_a_thread_can_be_started(
    lease_loop: LeaseLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, start, refused = threading.Event(), threading.Thread.start, []

    def full(thread: threading.Thread) -> None:
        if "on_lost" in thread.name and len(refused) < 3:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    monkeypatch.setattr(helper_threads, "RETRY", 0.001)
    lease_loop.renewer.at_tick = lambda: lease_loop.wake_at(
        math.inf
    )  # as the keeper does after its last lease

    lease_loop.call(lambda: helper_threads.losses.call(told.set))

    assert told.wait(PATIENCE)
    waits_for(lambda: lease_loop.current_worker() is None)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseLoop]:
    """A bell whose thread is there, while no other can be started any more."""
    lease_loop, there = LeaseLoop(), threading.Event()
    lease_loop.renewer.leases = 1
    lease_loop.call(there.set)
    assert there.wait(PATIENCE)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        yield lease_loop
    lease_loop.ends()


def test_loss_is_told_though_no_thread_can_be_started_any_more(limited: LeaseLoop) -> None:
    told = [threading.Event() for _ in range(3)]

    for one in told:
        limited.call(lambda one=one: helper_threads.losses.call(one.set))  # type: ignore[misc]

    assert all(one.wait(PATIENCE) for one in told)


def test_connection_is_opened_though_no_thread_can_be_started_any_more(limited: LeaseLoop) -> None:
    results: list[int] = []
    done = threading.Event()

    async def work() -> None:
        for number in range(3):
            results.append(await in_thread(lambda number=number: number))  # type: ignore[misc]
        done.set()

    limited.call(lambda: limited.start(work()))

    assert done.wait(PATIENCE)
    assert results == [0, 1, 2]


def test_what_connects_hangs_while_a_loss_is_told_all_the_same(limited: LeaseLoop) -> None:
    hang, told = threading.Event(), threading.Event()

    async def work() -> None:
        await in_thread(lambda: hang.wait(PATIENCE))

    limited.call(lambda: limited.start(work()))
    limited.call(lambda: helper_threads.losses.call(told.set))

    assert told.wait(PATIENCE)
    hang.set()


def test_losses_are_told_though_as_many_as_are_told_at_once_hang(lease_loop: LeaseLoop) -> None:
    hanging, told, many = helper_threads.HelperThreads("on_lost", 3, 0.05), threading.Event(), 8
    begun: list[None] = []

    def hang() -> None:
        begun.append(None)
        if len(begun) == many:
            told.set()
        told.wait(PATIENCE)

    lease_loop.renewer.at_tick = hanging.begin
    for _ in range(many):
        lease_loop.call(lambda: hanging.call(hang))

    assert told.wait(PATIENCE)
    waits_for(hanging.is_idle)


class Slow(logging.Handler):
    """Waits in ``emit`` for what only the background can do."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert self.may_go_on.wait(PATIENCE)
        self.said.append(record.getMessage())


@pytest.fixture
def slow() -> Iterator[Slow]:
    handler, logger = Slow(), logging.getLogger("redis_lock_decorators")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    handler.may_go_on.set()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_handler_that_waits_for_the_background_stops_nothing(
    lease_loop: LeaseLoop, slow: Slow
) -> None:
    went_on: list[bool] = []
    done = threading.Event()

    async def work() -> None:
        log.info("two")
        raise ValueError("three")

    def fail() -> None:
        raise ValueError

    def end() -> None:
        went_on.append(not slow.said)
        slow.may_go_on.set()
        done.set()

    lease_loop.call(lambda: log.warning("%s", "one"))
    lease_loop.call(fail)
    lease_loop.call(lambda: lease_loop.start(work(), lambda: lease_loop.call(end)))
    assert done.wait(PATIENCE)
    assert log_thread.flush(PATIENCE)

    assert went_on == [True]
    assert slow.said[0] == "one"
    assert "two" in slow.said
    assert "three" in slow.said[-1]


def test_place_ends_that_said_something_last(lease_loop: LeaseLoop) -> None:
    def end() -> None:
        log.info("last")
        lease_loop.stop_if_idle()

    lease_loop.call(end)

    waits_for(lambda: lease_loop.current_worker() is None)


def test_messages_that_nobody_takes_are_dropped_and_counted(
    lease_loop: LeaseLoop, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    def say() -> None:
        monkeypatch.setattr(log_thread, "MOST_WAITING", 3)
        for number in range(10):
            log.warning("%s", number)
        done.set()

    lease_loop.call(lambda: log.warning("first"))
    waits_for(
        lambda: not len(helper_threads.log_records) and not helper_threads.log_records.is_idle()
    )  # its handler has it
    lease_loop.call(say)
    assert done.wait(PATIENCE)
    slow.may_go_on.set()
    assert log_thread.flush(PATIENCE)

    kept = [said for said in slow.said if "dropped" not in said]
    assert kept == ["first", "0", "1", "2"]
    assert "7 messages about locks were dropped: a log handler is slow" in slow.said


def test_nobody_waits_for_a_lock_in_the_background(lease_loop: LeaseLoop) -> None:
    refused: list[object] = []
    done = threading.Event()

    def wait() -> None:
        port: Any = BlockingPort.__new__(BlockingPort)
        for work in (lambda: run(port.sleep(PATIENCE)), port.wakeup):
            with pytest.raises(LockError, match="the thread that renews all locks") as error:
                work()
            refused.append(error)
        done.set()

    lease_loop.call(wait)

    assert done.wait(PATIENCE)
    assert len(refused) == 2


def test_several_that_start_it_make_one_thread(lease_loop: LeaseLoop) -> None:
    lease_loop.call(lambda: None)
    worker, calls = lease_loop.worker, []
    done = threading.Event()

    worker._run()  # as the second of two threads would
    worker.call(lambda: calls.append(1))
    worker.call(done.set)

    assert done.wait(PATIENCE)
    assert calls == [1]
    assert not worker.has_ended


class Dying:
    """Ends the thread of a place at the so-manieth line of what it does as such."""

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


def test_place_whose_thread_is_interrupted_at_any_line_has_another(lease_loop: LeaseLoop) -> None:
    """Between becoming the place's thread and knowing it, too."""
    for at in range(1, 20):
        first, second, dying = threading.Event(), threading.Event(), Dying(at)
        threading.settrace(dying)
        lease_loop.call(first.set)
        waits_for(lambda: bool(dying.dead) or first.is_set())  # noqa: B023  # in this turn
        threading.settrace(None)  # type: ignore[arg-type]
        dying.at = 0
        for thread in dying.dead:
            thread.join(PATIENCE)
        lease_loop.call(second.set)
        assert second.wait(PATIENCE), at
        lease_loop.ends()
        if not dying.dead:
            break
    assert at > 2


def test_call_that_came_to_a_place_that_ends_is_not_lost(lease_loop: LeaseLoop) -> None:
    lease_loop.call(lambda: None)
    worker = lease_loop.worker
    subscribers: list[Wanted] = []
    retire = lease_loop.retire

    def late(ending: BackgroundWorker) -> None:
        retire(ending)
        if ending is worker and not subscribers:  # another thread found it present a moment ago
            subscribers.append(Wanted(lease_loop))
            worker.call(subscribers[0].open)

    lease_loop.retire = late  # type: ignore[method-assign]
    dies(lease_loop)

    waits_for(lambda: bool(subscribers))
    assert subscribers[0].opened.wait(PATIENCE)


def test_copy_of_the_parents_bell_does_nothing_in_a_child(lease_loop: LeaseLoop) -> None:
    lease_loop.process -= 1

    lease_loop.call(lambda: None)
    lease_loop.wake_at(lease_loop.now())

    assert lease_loop.current_worker() is None
    lease_loop.process += 1


def test_works_end_though_they_never_began(lease_loop: LeaseLoop) -> None:
    ended = threading.Event()

    async def work() -> None:
        raise ValueError

    lease_loop.call(lambda: lease_loop.start(work(), ended.set))

    assert ended.wait(PATIENCE)


def test_works_alternate_only_where_they_wait(lease_loop: LeaseLoop) -> None:
    steps: list[str] = []
    done = [threading.Event(), threading.Event()]

    async def work(name: str) -> None:
        for _ in range(3):
            steps.append(name)
            for _ in range(1000):  # while another could take its turn
                pass
            steps.append(name)
            await lease_loop.sleep(0.001)

    def begin() -> None:
        lease_loop.start(work("a"), done[0].set)
        lease_loop.start(work("b"), done[1].set)

    lease_loop.call(begin)

    assert all(one.wait(PATIENCE) for one in done)
    assert steps[::2] == steps[1::2]


def test_nothing_runs_in_the_context_of_who_rang(lease_loop: LeaseLoop) -> None:
    seen: list[object] = []
    done = threading.Event()

    async def work() -> None:
        seen.append(request.get())

    def look() -> None:
        seen.append(request.get())
        lease_loop.start(work(), done.set)

    lease_loop.renewer.at_tick = look
    token = request.set(object())
    try:
        lease_loop.wake_at(lease_loop.now())
        lease_loop.call(lambda: seen.append(request.get()))
        assert done.wait(PATIENCE)
        waits_for(lambda: len(seen) == 3)
    finally:
        request.reset(token)

    assert seen == [None] * 3


class Request:
    """What a context holds."""


def test_nothing_is_kept_of_who_rang_first(lease_loop: LeaseLoop) -> None:
    refs = []

    def serve() -> None:
        served = Request()
        refs.append(weakref.ref(served))
        request.set(served)
        lease_loop.wake_at(lease_loop.now() + 100)

    lease_loop.renewer.leases = 1
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    del thread

    waits_for(lambda: gc.collect() >= 0 and refs[0]() is None)


def test_a_loops_keeper_does_not_tick_in_the_context_of_a_task() -> None:
    seen: list[object] = []

    async def main() -> None:
        lease_loop: Any = CallerLoop()
        lease_loop._timer._call = lambda: seen.append(request.get())
        request.set(object())
        lease_loop.wake_at(lease_loop.now())
        lease_loop.call(lambda: seen.append(request.get()))
        await asyncio.sleep(0.01)

    asyncio.run(main())

    assert seen == [None, None]


def test_interpreter_without_daemon_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("daemon threads are disabled in this (sub)interpreter")

    monkeypatch.setattr(threading, "Thread", refuse)
    lease_loop = LeaseLoop()

    for ask in (lease_loop.check, lambda: lease_loop.call(print)):
        with pytest.raises(ConfigurationError, match="in this interpreter"):
            ask()


class Node:
    """A client of a node, as far as a listener needs one."""

    slotted = False
    is_unknown = staticmethod(lambda error: False)

    def __init__(self) -> None:
        self.client = self
        self.lines = 0

    def ahead(self) -> Node:
        return self

    async def subscription(self, key: bytes) -> Node:
        self.lines += 1
        return self

    async def send(self, *command: Any, until: float = 0) -> int:
        return 1

    async def receive(self, tell: Callable[[list[Any]], None]) -> None:
        tell(b"# Server")
        tell([b"subscribe", b"channel", 1])
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_waiters_of_a_listener_whose_tasks_are_all_cancelled_may_follow_to_another(
    steps: int,
) -> None:
    async def main() -> list[object]:
        lease_loop, node, ended = CallerLoop(), Node(), []
        port: Any = node
        subscriber = Subscriber(lease_loop, port, "channel", b"key", ended.append)
        turn = QueuedWaiter(b"key", "identifier", TaskWakeup())
        subscriber.join(turn)
        while not (others := asyncio.all_tasks() - {asyncio.current_task()}):
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in others:
            task.cancel()
        while await turn.wakeup.wait(PATIENCE) is not Signal.RETRY:
            pass
        subscriber.leave(turn)
        other = Subscriber(lease_loop, port, "another", b"key", ended.append)
        turn = QueuedWaiter(b"key", "identifier", TaskWakeup())
        other.join(turn)
        assert await turn.wakeup.wait(PATIENCE) is Signal.ADMITTED
        other.leave(turn)
        return list(ended)

    assert len(asyncio.run(main())) == 1
