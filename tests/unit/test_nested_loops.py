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

from redis_lock_decorators._io.background import supervised, timers


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    opened = VirtualLoop()
    for module in (supervised, timers):
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
        return await supervised.start(work())

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
