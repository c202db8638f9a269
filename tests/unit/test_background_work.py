"""Background tasks, and the context in which they run."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from support.lease_loops import WORKERS, LeaseLoop, lease_loop_of
from support.leftovers import PATIENCE
from support.waiting import until

from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators.errors import LockError

#: Some tests end a thread of the package by an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
request: ContextVar[object] = ContextVar("request", default=None)


@pytest.fixture(params=WORKERS)
def lease_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LeaseLoop]:
    yield from lease_loop_of(request.param, monkeypatch)


def test_waiting_for_a_lock_on_the_worker_is_refused(lease_loop: LeaseLoop) -> None:
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


def test_end_of_work_that_fails_is_reported(lease_loop: LeaseLoop) -> None:
    ended = threading.Event()

    async def work() -> None:
        raise ValueError

    lease_loop.call(lambda: lease_loop.start(work(), ended.set))

    assert ended.wait(PATIENCE)


def test_tasks_switch_only_where_they_wait(lease_loop: LeaseLoop) -> None:
    steps: list[str] = []
    done = [threading.Event(), threading.Event()]

    async def work(name: str) -> None:
        for _ in range(3):
            steps.append(name)
            for _ in range(1000):  # time for another thread to run
                pass
            steps.append(name)
            await lease_loop.sleep(0.001)

    def begin() -> None:
        lease_loop.start(work("a"), done[0].set)
        lease_loop.start(work("b"), done[1].set)

    lease_loop.call(begin)

    assert all(one.wait(PATIENCE) for one in done)
    assert steps[::2] == steps[1::2]


def test_calls_and_tasks_run_in_an_empty_context(lease_loop: LeaseLoop) -> None:
    seen: list[object] = []
    done = threading.Event()

    async def work() -> None:
        seen.append(request.get())

    def tick() -> None:
        seen.append(request.get())
        lease_loop.start(work(), done.set)

    lease_loop.renewer.at_tick = tick
    token = request.set(object())
    try:
        lease_loop.wake_at(lease_loop.now())
        lease_loop.call(lambda: seen.append(request.get()))
        assert done.wait(PATIENCE)
        until(lambda: len(seen) == 3)
    finally:
        request.reset(token)

    assert seen == [None] * 3


class Request:
    """A value of the context variable."""


def test_worker_keeps_no_context_of_its_first_caller(lease_loop: LeaseLoop) -> None:
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

    until(lambda: gc.collect() >= 0 and refs[0]() is None)


def test_caller_loop_ticks_in_an_empty_context() -> None:
    seen: list[object] = []

    async def main() -> None:
        lease_loop: Any = CallerLoop()
        lease_loop._timer._call = lambda: seen.append(request.get())
        request.set(object())
        lease_loop.wake_at(lease_loop.now())
        lease_loop.call(lambda: seen.append(request.get()))
        while len(seen) < 2:
            await asyncio.sleep(0)

    asyncio.run(main())

    assert seen == [None, None]


class Node:
    """The port of a subscriber."""

    slotted = False
    is_unknown = staticmethod(lambda error: False)

    def __init__(self) -> None:
        self.client = self
        self.subscriptions = 0

    def ahead(self) -> Node:
        return self

    async def subscription(self, key: bytes) -> Node:
        self.subscriptions += 1
        return self

    async def send(self, *command: Any, until: float = 0) -> int:
        return 1

    async def receive(self, handle: Callable[[list[Any]], None]) -> None:
        handle(b"# Server")
        handle([b"subscribe", b"channel", 1])
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_waiters_of_a_cancelled_subscriber_can_join_another(
    steps: int,
) -> None:
    async def main() -> list[object]:
        lease_loop, node, ended = CallerLoop(), Node(), []
        port: Any = node
        subscriber = Subscriber(lease_loop, port, "channel", b"key", ended.append)
        waiter = QueuedWaiter(b"key", "identifier", TaskWakeup())
        subscriber.join(waiter)
        while not (others := asyncio.all_tasks() - {asyncio.current_task()}):
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in others:
            task.cancel()
        while await waiter.wakeup.wait(PATIENCE) is not Signal.RETRY:
            pass
        subscriber.leave(waiter)
        other = Subscriber(lease_loop, port, "another", b"key", ended.append)
        waiter = QueuedWaiter(b"key", "identifier", TaskWakeup())
        other.join(waiter)
        assert await waiter.wakeup.wait(PATIENCE) is Signal.ADMITTED
        other.leave(waiter)
        return list(ended)

    assert len(asyncio.run(main())) == 1
