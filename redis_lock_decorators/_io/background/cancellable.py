"""Work that may swallow a cancellation of the task that awaits it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from redis_lock_decorators._io.background.supervised import start
from redis_lock_decorators._io.timeouts import cancellations

T = TypeVar("T")


async def cancellable(work: Coroutine[Any, Any, T], forgo: Callable[[T], Awaitable[object]]) -> T:
    """The result of a work, or the cancellation of the running task though the work swallows it.

    As ``asyncio.wait_for`` may before Python 3.12, by which clients connect. ``forgo`` is called
    with the result that nobody gets then, maybe later: before Python 3.11, which does not tell
    how often a task was cancelled, the work has a task of its own.
    """
    if sys.version_info < (3, 11):
        return await _apart(work, forgo)
    before = cancellations()
    result = await work
    if cancellations() > before:
        await forgo(result)
        raise asyncio.CancelledError
    return result


async def _apart(work: Coroutine[Any, Any, T], forgo: Callable[[T], Awaitable[object]]) -> T:
    task: Any = start(work)
    try:
        result: T = await asyncio.shield(task)
    except BaseException:
        task.cancel()
        task.add_done_callback(partial(_forgo, forgo))
        raise
    return result


def _forgo(forgo: Callable[[T], Awaitable[object]], task: asyncio.Future[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        start(forgo(task.result()))
