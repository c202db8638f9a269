"""Outcomes of futures that a task awaits, set so that the task continues in any case."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any


def settle(future: asyncio.Future[Any], outcome: object) -> None:
    """Set the result of a future, or the exception if it is one.

    A signal handler may raise an exception while asyncio schedules the task that awaits the future.
    asyncio then forgets that task, which would never continue, even if it is cancelled.
    """
    waiting: Any = future._callbacks or ()
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except BaseException:
        future.get_loop().call_soon(_wake, future, waiting, context=Context())
        raise


def _wake(future: asyncio.Future[Any], waiting: list[tuple[Any, Context]]) -> None:
    """Continue the tasks that still await a future, unlike those that were scheduled."""
    for wakeup, context in waiting:
        task: Any = getattr(wakeup, "__self__", None)
        if isinstance(task, asyncio.Task) and task._fut_waiter is future:  # type: ignore[attr-defined]
            context.run(wakeup, future)
