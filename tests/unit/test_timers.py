"""Timers of event loops fire even if an exception interrupts them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io.background import timers
from redis_lock_decorators._io.background.timers import LoopTimer

#: More lines than the callback of a timer has.
MOST = 25


class Limit(Exception):
    """What a signal handler raises."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, context: None)
    monkeypatch.setattr(timers, "monotonic", loop.time)
    yield loop
    loop.close()


class Interrupting:
    """Raises at a line of the given code objects; line 0 is the entry of the function."""

    def __init__(self, at: int, codes: Any = (LoopTimer._fire.__code__,)) -> None:
        self.at, self.count, self.raised = at, 0, False
        self.codes = codes

    def call(self, frame: Any, event: str, _: object) -> Any:
        if frame.f_code in self.codes:
            self.step("line")
            return lambda frame, event, _: self.step(event)
        return None

    def step(self, event: str) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                self.raised = True
                raise Limit
        return lambda frame, event, _: self.step(event)


def fired(loop: VirtualLoop, interrupting: Interrupting) -> list[float]:
    """The times at which a timer fires that is set every ten seconds; its first call is cut."""
    times: list[float] = []

    def call() -> None:
        times.append(loop.now)
        timer.set(times[0] + 10 * len(times))

    timer = LoopTimer(call)

    async def wait() -> None:
        start = loop.now
        timer.set(start + 1)
        sys.settrace(interrupting.call)
        try:
            await asyncio.sleep(5)
        finally:
            sys.settrace(None)
        await asyncio.sleep(30)

    loop.run_until_complete(wait())
    return times


def test_timer_interrupted_at_any_line_fires_again(loop: VirtualLoop) -> None:
    raised = 0
    for at in range(1, MOST):
        start, interrupting = loop.now, Interrupting(at)
        times = fired(loop, interrupting)
        assert times[0] - start < 1.5
        assert len(times) >= 4
        raised += interrupting.raised
    assert raised > 3


def test_timer_interrupted_while_it_is_set_fires(loop: VirtualLoop) -> None:
    lines = {LoopTimer.set.__code__, LoopTimer._timers_after.__code__}
    for at in range(1, MOST):
        times: list[float] = []
        interrupting = Interrupting(at, lines)

        async def wait(times: list[float] = times, interrupting: Any = interrupting) -> None:
            timer = LoopTimer(lambda: times.append(loop.now))
            timer.set(loop.now + 5)
            sys.settrace(interrupting.call)
            try:
                timer.set(loop.now + 1)
            except Limit:
                assert interrupting.raised
            finally:
                sys.settrace(None)
            await asyncio.sleep(6)

        start = loop.now
        loop.run_until_complete(wait())

        assert times, f"the timer does not fire if line {at} is interrupted"
        assert times[0] - start <= 5
    assert not interrupting.raised, "there are more lines"


def test_uninterrupted_timer_fires_on_time(loop: VirtualLoop) -> None:
    start = loop.now

    times = fired(loop, Interrupting(0))

    assert [round(time - start, 3) for time in times] == [1, 11, 21, 31]


def test_call_that_fails_is_repeated_once(loop: VirtualLoop) -> None:
    times: list[float] = []

    def call() -> None:
        times.append(loop.now)
        raise Limit

    async def wait() -> None:
        LoopTimer(call).set(loop.now + 1)
        await asyncio.sleep(10)

    start = loop.now
    loop.run_until_complete(wait())

    assert [time - start for time in times] == [1, pytest.approx(1.25)]


def test_overdue_timer_is_set_anew_by_the_next_call(loop: VirtualLoop) -> None:
    times: list[float] = []
    timer = LoopTimer(lambda: times.append(loop.now))

    async def wait() -> None:
        timer.set(loop.now + 1)
        timer._timers.cancel()  # as after an interrupt between two lines
        await asyncio.sleep(2)
        timer.set(loop.now + 100)
        await asyncio.sleep(1)

    loop.run_until_complete(wait())

    assert len(times) == 1
