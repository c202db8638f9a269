"""A background task that is only slow is not taken over by another task."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator

import pytest
import redis
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._io.background import starting, supervised, timers


class Polling:
    """An awaitable that yields until a given time, always at the same line.

    Attributes:
        tasks: the tasks that have run its steps.
    """

    def __init__(self, loop: VirtualLoop, until: float) -> None:
        self.loop, self.until = loop, until
        self.tasks: set[object] = set()

    def __await__(self) -> Iterator[None]:
        while self.loop.now < self.until:
            self.tasks.add(asyncio.current_task())
            yield


class SlowSteps(VirtualLoop):
    """An event loop whose iterations take time, so that polling ends."""

    def _run_once(self) -> None:
        self.now += 0.01
        super()._run_once()  # type: ignore[misc]


def test_polling_coroutine_is_run_by_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SlowSteps()
    monkeypatch.setattr(supervised, "monotonic", loop.time)
    monkeypatch.setattr(timers, "monotonic", loop.time)
    polling = Polling(loop, loop.now + 3)

    async def work() -> None:
        await polling

    async def main() -> None:
        await starting.wait_all([starting.start(work())])

    loop.run_until_complete(main())
    loop.close()

    assert len(polling.tasks) == 1


class TimersFirst(SlowSteps):
    """Runs the callbacks that are ready only when no timer is due any more, like uvloop."""

    def _run_once(self) -> None:
        ready, timers_due = self._ready, self._scheduled  # type: ignore[attr-defined]
        waiting = list(ready)
        ready.clear()
        while timers_due and timers_due[0]._when <= self.now:
            timer = heapq.heappop(timers_due)
            timer._scheduled = False
            if not timer._cancelled:
                timer._run()
        ready.extendleft(reversed(waiting))
        super()._run_once()  # type: ignore[misc]


def test_task_is_not_taken_over_while_slow_timers_delay_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, taken = TimersFirst(), list[object]()
    for module in (starting, supervised, timers):
        monkeypatch.setattr(module, "monotonic", loop.time)
    take_over = supervised.SupervisedTask.take_over

    def taking(task: supervised.SupervisedTask) -> object:
        taken.append(task)
        return take_over(task)

    monkeypatch.setattr(supervised.SupervisedTask, "take_over", taking)

    async def work() -> None:
        while loop.now < 1010:
            await asyncio.sleep(0)

    def block() -> None:
        loop.now += 0.03
        if loop.now < 1010:
            loop.call_later(0, block)

    async def main() -> None:
        for _ in range(10):
            loop.call_later(0.01, block)
        await starting.wait_all([starting.start(work())])

    loop.run_until_complete(main())
    loop.close()

    assert taken == []


def test_task_that_a_later_check_finds_is_not_taken_over_with_those_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, steps_made = VirtualLoop(), list[object]()
    for module in (starting, supervised, timers):
        monkeypatch.setattr(module, "monotonic", loop.time)
    awaited: list[asyncio.Future[None]] = []

    async def work() -> None:
        while loop.now < 1002:
            awaited.append(loop.create_future())
            await awaited[-1]
            steps_made.append(asyncio.current_task())

    def wake_and_check(tasks: supervised.BackgroundTasks) -> None:
        loop.now += 0.005
        if awaited and not awaited[-1].done():
            awaited[-1].set_result(None)
        tasks._check()
        if loop.now < 1003:
            loop.call_soon(wake_and_check, tasks)

    async def main() -> None:
        task = starting.start(work())
        loop.call_soon(wake_and_check, supervised.background_tasks())
        await starting.wait_all([task])

    loop.run_until_complete(main())
    loop.close()

    assert len(set(steps_made)) == 1
