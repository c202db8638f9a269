"""Background work and new connections do not keep the context of the code that caused them."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from redis_lock_decorators._io.background.contexts import in_empty_context
from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.background.timers import wait

VALUE: ContextVar[object] = ContextVar("value", default=None)


async def two_steps(steps: list[object]) -> str:
    steps.append(VALUE.get())
    try:
        await asyncio.sleep(0)
        steps.append(VALUE.get())
    except BaseException as error:
        steps.append(type(error))
        raise
    return "result"


def test_each_step_runs_in_an_empty_context() -> None:
    steps: list[object] = []
    VALUE.set(1)
    assert asyncio.run(in_task(steps)) == "result"
    assert steps == [None, None]


async def in_task(steps: list[object]) -> str:
    VALUE.set(1)
    result = await in_empty_context(two_steps(steps))
    assert VALUE.get() == 1
    return result


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_exception_reaches_the_work(kind: type[BaseException]) -> None:
    steps: list[object] = []
    work: Any = in_empty_context(two_steps(steps))
    work.send(None)
    with pytest.raises(kind):
        work.throw(kind())
    assert steps == [None, kind]


def test_closing_reaches_the_work() -> None:
    steps: list[object] = []
    work: Any = in_empty_context(two_steps(steps))
    work.send(None)
    work.close()
    assert steps == [None, GeneratorExit]


def test_background_task_starts_in_an_empty_context() -> None:
    async def main() -> None:
        VALUE.set(1)
        await start(two_steps(steps))

    steps: list[object] = []
    asyncio.run(main())
    assert steps == [None, None]


def test_timers_of_a_wait_have_an_empty_context() -> None:
    async def main() -> None:
        VALUE.set(1)
        ready = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(wait(ready, 1000))
        await asyncio.sleep(0)
        timers: Any = asyncio.get_running_loop()
        contexts = [timer._context for timer in timers._scheduled]
        ready.set_result(None)
        await waiting
        assert len(contexts) == 2
        assert not any(VALUE in context for context in contexts)

    asyncio.run(main())
