"""A loss cancels its task also inside ``asyncio.wait_for``, which may swallow a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from redis_lock_decorators.asyncio._cancellation import SWALLOWS, BlockTask

LONG = 3600.0

pytestmark = [
    pytest.mark.skipif(not SWALLOWS, reason="this wait_for does not even let other tasks run"),
    # A call of ``wait_for`` may be cancelled before its first step.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]


async def at_once() -> int:
    return 1


async def failing() -> int:
    raise ValueError


async def soon() -> int:
    await asyncio.sleep(0)
    return 1


async def direct(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.wait_for(work(), LONG)


async def nested(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.wait_for(asyncio.wait_for(work(), LONG), LONG)


async def in_task(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.ensure_future(direct(work))


async def in_generator(work: Callable[[], Awaitable[int]]) -> int:
    async def numbers() -> AsyncIterator[int]:
        yield await direct(work)

    async for number in numbers():
        return number
    raise AssertionError


class Reader:
    """An awaitable of a program's own."""

    def __init__(self, work: Callable[[], Awaitable[int]]) -> None:
        self._work = work

    def __await__(self):
        return direct(self._work).__await__()


async def in_awaitable(work: Callable[[], Awaitable[int]]) -> int:
    return await Reader(work)


@pytest.mark.parametrize("iterations", range(12))
@pytest.mark.parametrize("work", [at_once, soon, failing])
@pytest.mark.parametrize("form", [direct, nested, in_task, in_generator, in_awaitable])
def test_task_that_always_waits_for_something_that_ends_is_cancelled(
    form: Callable[..., Awaitable[int]], work: Callable[[], Awaitable[int]], iterations: int
) -> None:
    async def endless() -> None:
        while not has_ended:
            with contextlib.suppress(ValueError):
                await form(work)

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(endless())
        for _ in range(iterations):
            await asyncio.sleep(0)
        loop.call_soon(BlockTask(weakref.ref(task)).cancel)
        for _ in range(50):
            await asyncio.sleep(0)
        has_ended.append(True)
        await asyncio.wait([task])

        assert task.cancelled()

    has_ended: list[bool] = []
    asyncio.run(main())
