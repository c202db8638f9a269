"""Work that is started in the background of an event loop, and is supervised there."""

from __future__ import annotations

import asyncio
import math
from asyncio.tasks import _unregister_task  # documented for other implementations of tasks
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, cast

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._io.background.supervised import CHECK_INTERVAL, background_tasks
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._rules.redaction import described


def start(
    work: Awaitable[object], ended: Callable[[], object] | None = None
) -> asyncio.Future[object]:
    """Run work in the background, independently of the caller, and of what its context refers to.

    ``ended`` is called afterwards, even if the work never made a step.
    """
    return Context().run(start_in_context, work, ended)


def start_in_context(
    work: Awaitable[object], ended: Callable[[], object] | None = None
) -> asyncio.Future[object]:
    """Run work in the background, in the context of the caller."""
    task = asyncio.ensure_future(work)
    background_tasks().add(task, ended)
    task.add_done_callback(_log_failure, context=Context())
    return task


def start_unlisted(work: Awaitable[object]) -> asyncio.Future[object]:
    """Run work in the background by a task that ``asyncio.all_tasks`` does not list.

    So code that cancels all tasks, such as the end of ``asyncio.run``, does not cancel it. A listed
    task waits for it, so that such code does, too; and the end of the event loop waits, as that
    task may be cancelled before its first step, or start after all tasks were listed.
    """
    task: Any = start(work)
    _unregister_task(task)
    task._log_destroy_pending = False  # the event loop may be closed before the work is done
    background_tasks().add_unlisted(task)
    start(_outlast(task))
    return cast("asyncio.Future[object]", task)


async def _outlast(task: asyncio.Future[object]) -> None:
    """Wait for a task; for as long as an outage may last once the waiting is cancelled."""
    end = math.inf
    while not task.done() and (left := end - monotonic()) > 0:
        try:
            await asyncio.wait([task], timeout=min(CHECK_INTERVAL, left))
        except asyncio.CancelledError:
            end = min(end, monotonic() + OUTAGE)
    background_tasks().give_up(task)


def start_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[object]]) -> None:
    """Run work in the background of an event loop, from any thread; not if the loop is closed."""
    if is_running_here(loop):
        start(work())
    else:
        call_on(loop, lambda: start(work()))


async def gather(parts: list[Awaitable[Any]]) -> list[Any]:
    """Run awaitables concurrently; return their results, or cancel the others if one fails."""
    if len(parts) == 1:
        return [await parts[0]]
    tasks = [asyncio.ensure_future(part) for part in parts]
    for task in tasks:
        background_tasks().add(task)
    try:
        await wait_all(tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [task.result() for task in tasks]


async def wait_all(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until tasks are done, even if the done callback of one is lost."""
    while waiting := [task for task in tasks if not task.done()]:
        await asyncio.wait(waiting, timeout=CHECK_INTERVAL)


def _log_failure(task: asyncio.Future[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("background work on locks failed: %s", described(error))
