"""Exceptions from signal handlers and lost wake-ups: the other requests are still sent."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.batching import (
    FILES,
    SlowTransport,
    limit_batches,
    lose_wakeup,
    results_of,
    use_clock,
)
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io.background import supervised
from redis_lock_decorators._io.transport.batcher import RequestBatcher


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """An event loop whose batchers send one request per batch."""
    limit_batches(1, monkeypatch)
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


@pytest.fixture(autouse=True)
def _discarded_tasks() -> Iterator[None]:
    """Remove the unfinished work of closed event loops, so that no other test finds it."""
    yield
    supervised._forget_closed()
    gc.collect()


class Interrupting:
    """A trace function that raises KeyboardInterrupt at one of the batcher's lines.

    Attributes:
        where: the function and line at which it was raised; None if it was not.
    """

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0
        self.where: Any = None

    def call(self, frame: Any, event: str, detail: Any) -> Any:
        return self.line if frame.f_code.co_filename in FILES else None

    def line(self, frame: Any, event: str, detail: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                self.where = frame.f_code.co_name, frame.f_lineno
                raise KeyboardInterrupt
        return self.line


class InterruptingOneTask(Interrupting):
    """Counts only the lines that the current task runs."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.task = asyncio.current_task()

    def line(self, frame: Any, event: str, detail: Any) -> Any:
        if asyncio.current_task() is not self.task:
            return self.line
        return super().line(frame, event, detail)


@pytest.mark.filterwarnings("ignore:coroutine .*(_send_pending|send_batch):RuntimeWarning")
def test_interrupt_at_any_line_leaves_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is queued then nor one that is made later on the same event loop."""
    for line in itertools.count(1):
        loop, interrupt = VirtualLoop(), Interrupting(line)
        use_clock(loop.time, monkeypatch)
        waiting = waiting_after(loop, interrupt)
        loop.close()
        assert not waiting, interrupt.where
        if not interrupt.where:
            break
    assert line > 100


def waiting_after(loop: VirtualLoop, interrupt: Interrupting) -> set[Any]:
    """The requests that never end after an interrupt."""
    transport, batcher = SlowTransport(loop, 0.1), loop.run_until_complete(new_batcher())

    async def ask(number: int) -> Any:
        return await batcher.exchange(transport, (number,), loop.now + 5, first=number == 3)

    tasks = [loop.create_task(ask(number)) for number in range(5)]
    sys.settrace(interrupt.call)
    try:
        loop.run_until_complete(asyncio.wait(tasks))
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    after = [loop.create_task(ask(number)) for number in range(5, 8)]
    _, waiting = loop.run_until_complete(asyncio.wait([*tasks, *after], timeout=20))
    for task in {*tasks, *after} - waiting:
        assert isinstance(task.exception(), (type(None), TimeoutError, KeyboardInterrupt))
    assert all(task.exception() is None for task in {*after} - waiting)
    return waiting


async def new_batcher() -> RequestBatcher:
    return RequestBatcher()


class OneAtATime(SlowTransport):
    """Refuses two exchanges at the same time, which would read each other's replies."""

    is_under_way = False

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        assert not self.is_under_way
        self.is_under_way = True
        try:
            return await super().send_batch(commands, until)
        finally:
            self.is_under_way = False


@pytest.mark.filterwarnings("ignore:coroutine .*(_send_pending|send_batch):RuntimeWarning")
@pytest.mark.parametrize("others", [0, 3], ids=["alone", "with others"])
def test_interrupted_task_that_continues_delays_no_other_reply(
    loop: VirtualLoop, others: int
) -> None:
    """Interrupted at each line of the batcher in turn."""

    async def ask(line: int) -> Interrupting:
        batcher, transport = RequestBatcher(), OneAtATime(loop, 0.01)
        interrupt, until, numbers = InterruptingOneTask(line), loop.now + 60, range(others)
        neighbours = [
            asyncio.ensure_future(batcher.exchange(transport, (number,), until))
            for number in numbers
        ]
        sys.settrace(interrupt.call)
        try:
            await batcher.exchange(transport, ("cut",), until)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        began = loop.now
        first = batcher.exchange(transport, ("first",), until, first=True)
        replies = await asyncio.gather(*neighbours, first)
        assert replies == [*[(number,) for number in numbers], ("first",)]
        assert await batcher.exchange(transport, ("next",), until) == ("next",)
        assert loop.now - began < 1, interrupt.where
        return interrupt

    for line in itertools.count(1):
        if not loop.run_until_complete(ask(line)).where:
            break
    assert line > 10


class LosingWakeup(SlowTransport):
    """A server; the wake-up of the task that awaits the second batch is lost."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if len(self.sent) == 1:
            self.sent += commands
            reply = self.loop.create_future()
            self.loop.call_later(0.01, _resolve_without_wakeup, reply)
            await reply
        return await super().send_batch(commands, until)


def _resolve_without_wakeup(reply: asyncio.Future[None]) -> None:
    for task in asyncio.all_tasks():
        if getattr(task, "_fut_waiter", None) is reply:
            lose_wakeup(reply)
    reply.set_result(None)


def test_sending_task_whose_wakeup_is_lost_delays_no_other_request(loop: VirtualLoop) -> None:
    results = results_of(LosingWakeup(loop, 0.1), 4, 5)

    assert results == [(0,), (1,), (2,), (3,)]
    assert loop.now < 1002


class SlowIterations(SlowTransport):
    """A server that answers immediately, on an event loop whose every iteration takes long."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        await asyncio.sleep(0)
        if len(self.sent) == 2:
            reply = self.loop.create_future()
            steps = map(self._start_slowly, [None] * 7 + [reply])
            self.starting = [asyncio.ensure_future(step) for step in steps]
            await reply
        return list(commands)

    async def _start_slowly(self, reply: asyncio.Future[None] | None) -> None:
        self.loop.now += 1.5
        if reply is not None:  # read in the next iteration, before the timers that are due then
            self.loop.call_soon(reply.set_result, None)
        await self.batcher.exchange(self, ("late",), self.loop.now + 60)


def test_task_that_is_about_to_be_woken_is_not_abandoned(loop: VirtualLoop) -> None:
    """Although several checks are due by then."""
    results = results_of(SlowIterations(loop, 0), 6, 60)

    assert results == [(number,) for number in range(6)]


def test_caller_whose_wakeup_is_lost_delays_no_other_request(loop: VirtualLoop) -> None:
    """The program has lost that task; its exchange is abandoned."""
    transport = SlowTransport(loop, 0.1)

    async def ask() -> tuple[asyncio.Task[Any], list[Any]]:
        batcher, until = RequestBatcher(), loop.now + 60
        lost = asyncio.create_task(exchange(batcher, ("lost",)))
        await asyncio.sleep(0)
        lose_wakeup(lost._fut_waiter)  # type: ignore[attr-defined]
        others = [batcher.exchange(transport, (number,), until) for number in range(3)]
        return lost, await asyncio.gather(*others)

    async def exchange(batcher: RequestBatcher, command: Any) -> Any:
        return await batcher.exchange(transport, command, loop.now + 60)

    lost, results = loop.run_until_complete(ask())

    assert results == [(0,), (1,), (2,)]
    assert loop.now < 1002
    lost._log_destroy_pending = False  # type: ignore[attr-defined]
