"""Calls at the end of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from redis_lock_decorators._flow import fork

#: The tasks in which work of ``at_end`` runs.
_ending: set[asyncio.Task[Any]] = set()  #: any thread


def at_end(work: Callable[[], Awaitable[None]]) -> object:
    """Await ``work`` when the running event loop ends; keep a reference to the result until then.

    The only hook at the end of a loop is the closing of unfinished async generators, by
    ``loop.shutdown_asyncgens``, which ``asyncio.run`` calls. Otherwise it is not awaited, nor in a
    forked child that runs on the loop of its parent.
    """
    generator = _until_end(asyncio.get_running_loop(), work)
    # This runs it to its first yield, without the loop, which warns if it has ended already.
    with suppress(StopIteration, ResourceWarning):
        generator.asend(None).send(None)
    return generator


async def _until_end(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    process = fork.process_id
    try:
        yield
    finally:
        # It may be garbage-collected after its loop was closed.
        if process == fork.process_id and _is_running(loop):
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            _ending.add(task)
            try:
                with suppress(Exception):
                    await work()
            finally:
                _ending.discard(task)


async def generators_closed() -> None:
    """Wait for the program's async generators, which the event loop closes at the same time.

    They may hold leases, and release them. The end of the loop waits for them anyway.
    """
    await asyncio.sleep(0)  # let each task that closes one begin
    while closing := [task for task in asyncio.all_tasks() if _closes_generator(task)]:
        await asyncio.wait(closing)


def _closes_generator(task: asyncio.Task[Any]) -> bool:
    is_aclose = type(task.get_coro()).__name__ == "async_generator_athrow"
    return is_aclose and task not in _ending


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
