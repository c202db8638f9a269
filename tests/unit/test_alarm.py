"""An alarm of an event loop rings though something interrupts it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io.background import alarm as alarms
from redis_lock_decorators._io.background.alarm import LoopAlarm

#: More lines than the ring of an alarm has.
MOST = 25


class Limit(Exception):
    """What a signal handler raises."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, context: None)
    monkeypatch.setattr(alarms, "monotonic", loop.time)
    yield loop
    loop.close()


class Interrupting:
    """Raises at a line of the alarm's; line 0 is the entry of what its timer calls."""

    def __init__(self, at: int, codes: Any = (LoopAlarm._go.__code__,)) -> None:
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


def rung(loop: VirtualLoop, interrupting: Interrupting) -> list[float]:
    """When an alarm rang that rings itself every ten seconds, and whose first ring is cut."""
    times: list[float] = []

    def ring() -> None:
        times.append(loop.now)
        alarm.set(times[0] + 10 * len(times))

    alarm = LoopAlarm(ring)

    async def wait() -> None:
        start = loop.now
        alarm.set(start + 1)
        sys.settrace(interrupting.call)
        try:
            await asyncio.sleep(5)
        finally:
            sys.settrace(None)
        await asyncio.sleep(30)

    loop.run_until_complete(wait())
    return times


def test_ring_that_is_interrupted_at_any_line_is_made_up_for(loop: VirtualLoop) -> None:
    raised = 0
    for at in range(1, MOST):
        start, interrupting = loop.now, Interrupting(at)
        times = rung(loop, interrupting)
        assert times[0] - start < 1.5
        assert len(times) >= 4
        raised += interrupting.raised
    assert raised > 3


def test_alarm_rings_though_it_is_interrupted_when_it_is_set_anew(loop: VirtualLoop) -> None:
    lines = {LoopAlarm.set.__code__, LoopAlarm._timers_after.__code__}
    for at in range(1, MOST):
        times: list[float] = []
        interrupting = Interrupting(at, lines)

        async def wait(times: list[float] = times, interrupting: Any = interrupting) -> None:
            alarm = LoopAlarm(lambda: times.append(loop.now))
            alarm.set(loop.now + 5)
            sys.settrace(interrupting.call)
            try:
                alarm.set(loop.now + 1)
            except Limit:
                assert interrupting.raised
            finally:
                sys.settrace(None)
            await asyncio.sleep(6)

        start = loop.now
        loop.run_until_complete(wait())

        assert times, f"it does not ring when line {at} is interrupted"
        assert times[0] - start <= 5
    assert not interrupting.raised, "there are more lines"


def test_ring_that_nothing_interrupts_comes_in_time(loop: VirtualLoop) -> None:
    start = loop.now

    times = rung(loop, Interrupting(0))

    assert [round(time - start, 3) for time in times] == [1, 11, 21, 31]


def test_ring_whose_call_fails_is_repeated_once(loop: VirtualLoop) -> None:
    times: list[float] = []

    def ring() -> None:
        times.append(loop.now)
        raise Limit

    async def wait() -> None:
        LoopAlarm(ring).set(loop.now + 1)
        await asyncio.sleep(10)

    start = loop.now
    loop.run_until_complete(wait())

    assert [time - start for time in times] == [1, pytest.approx(1.25)]


def test_overdue_alarm_is_set_anew_by_who_asks_next(loop: VirtualLoop) -> None:
    times: list[float] = []
    alarm = LoopAlarm(lambda: times.append(loop.now))

    async def wait() -> None:
        alarm.set(loop.now + 1)
        alarm._timers.cancel()  # as an interrupt between two lines would leave it
        await asyncio.sleep(2)
        alarm.set(loop.now + 100)
        await asyncio.sleep(1)

    loop.run_until_complete(wait())

    assert len(times) == 1
