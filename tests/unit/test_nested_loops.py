"""Programs may run their event loop inside a step of a task, as with nest_asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis
from support.nested_loops import run_nested
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._io.background import starting, supervised, timers
from redis_lock_decorators.asyncio import _cancellation
from redis_lock_decorators.asyncio._cancellation import BlockTask, running


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    opened = VirtualLoop()
    for module in (starting, supervised, timers, _cancellation):
        monkeypatch.setattr(module, "monotonic", opened.time)
    yield opened
    opened.close()


def test_task_that_runs_the_loop_is_not_taken_over(loop: VirtualLoop) -> None:
    ends: list[object] = []

    async def work() -> str:
        await asyncio.sleep(0)
        task = asyncio.current_task()
        run_nested(loop, 2)
        ends.append("nested")
        await asyncio.sleep(0.1)
        ends.append(asyncio.current_task() is task)
        return "done"

    async def main() -> object:
        return await starting.start(work())

    assert loop.run_until_complete(main()) == "done"
    assert ends == ["nested", True]


def test_call_that_runs_the_loop_drops_no_other_call(loop: VirtualLoop) -> None:
    made: list[str] = []
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))

    def nesting() -> None:
        made.append("first")
        if len(made) == 1:
            run_nested(loop, 1)

    async def main() -> None:
        calls = supervised.background_tasks()
        calls.call(nesting)
        calls.call(lambda: made.append("second"))
        await asyncio.sleep(0.5)
        calls.call(lambda: made.append("third"))
        await asyncio.sleep(0.5)

    loop.run_until_complete(main())
    assert made[-2:] == ["second", "third"]
    assert failures == []


@pytest.mark.parametrize("awaits", [False, True])
def test_task_in_a_step_is_cancelled_by_a_loss_after_that_step(
    loop: VirtualLoop, awaits: bool
) -> None:
    errors: list[object] = []
    ours: list[bool] = []

    async def body() -> None:
        block = BlockTask(running())  # type: ignore[arg-type]
        loop.call_later(0.2, block.cancel)
        run_nested(loop, 2)
        try:
            if awaits:
                await asyncio.sleep(10)
        except asyncio.CancelledError as error:
            errors.append(error)
        assert block.is_due
        ours.append(block.uncancel(errors[0] if errors else None))
        await asyncio.sleep(1)  # not cancelled, as the release of a lock

    loop.run_until_complete(body())

    assert len(errors) == awaits
    assert ours == [awaits]
    assert loop.now < 1000 + 5
