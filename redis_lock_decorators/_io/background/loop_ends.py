"""Calls at the end of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.retries import ROUND_TRIP
from redis_lock_decorators._io.clock import monotonic


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


async def others_closed() -> None:
    """Wait for the other async generators that are closed at the end of the running event loop.

    They may release leases. Each is closed by a task; one more task waits for all of them.
    """
    own, end = asyncio.current_task(), monotonic() + ROUND_TRIP
    while (left := end - monotonic()) > 0:
        others = [task for task in asyncio.all_tasks() if task is not own]
        if len(others) <= 1:
            return
        await asyncio.wait(others, timeout=left, return_when=asyncio.FIRST_COMPLETED)


async def _until_end(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    process = fork.process_id
    try:
        yield
    finally:
        # It may be garbage-collected after its loop was closed.
        if process == fork.process_id and _is_running(loop):
            with suppress(Exception):
                await work()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
