"""Calls of code that may swallow a cancellation of the task that awaits it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.closed_loops import raise_if_closed
from redis_lock_decorators._io.timeouts import cancellations

T = TypeVar("T")


async def nothing(result: object) -> None:
    """Discard a result that needs no clean-up."""


async def cancellable(
    work: Coroutine[Any, Any, T], discard: Callable[[T], Awaitable[object]] = nothing
) -> T:
    """Return the result of ``work``; raise ``CancelledError`` if the task was cancelled meanwhile.

    Clients connect and send by ``asyncio.wait_for``, which may swallow a cancellation before Python
    3.12, also one after which they fail.
    ``discard`` is then called with the unused result, maybe later: before Python 3.11, which does
    not count the cancellations of a task, ``work`` runs in a separate task.
    """
    if sys.version_info < (3, 11):
        return await _in_separate_task(work, discard)
    before, loop = cancellations(), asyncio.get_running_loop()
    try:
        result = await work
    except Exception:
        raise_if_closed(loop)
        if cancellations() > before:
            raise asyncio.CancelledError from None
        raise
    if cancellations() > before:
        await discard(result)
        raise asyncio.CancelledError
    return result


async def _in_separate_task(
    work: Coroutine[Any, Any, T], discard: Callable[[T], Awaitable[object]]
) -> T:
    task: Any = start(work)
    try:
        result: T = await asyncio.shield(task)
    except BaseException as error:
        task.cancel()
        task.add_done_callback(partial(_discard_result, discard))
        if isinstance(error, asyncio.CancelledError):
            # If it swallows this, it may still send its request: the caller undoes it afterwards.
            await asyncio.wait([task], timeout=ROUND_TRIP)
        raise
    return result


def _discard_result(discard: Callable[[T], Awaitable[object]], task: asyncio.Future[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        start(discard(task.result()))
