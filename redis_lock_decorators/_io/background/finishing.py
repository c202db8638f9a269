"""Work that is completed even if the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.starting import start_unlisted
from redis_lock_decorators._io.background.supervised import CHECK_INTERVAL
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.marks import ALSO, marked

#: How often work is started if its task is cancelled each time, as by code that cancels all tasks.
MOST_STARTS = 50


async def finish(work: Callable[[], Awaitable[object]], longest: float = math.inf) -> None:
    """Complete work even if the caller is cancelled, or all tasks are.

    If an exception from a signal handler ends the work, it is started again, and the exception is
    raised afterwards. The caller waits for ``longest`` seconds, and for one round trip once it is
    cancelled; then the work continues without it, and the end of ``asyncio.run`` waits for it.
    """
    cancelled: asyncio.CancelledError | None = None
    outside: BaseException | None = None
    end, task, starts = monotonic() + longest, start_unlisted(work()), 1
    while not task.done() or _is_interrupted(task, outside, starts):
        if task.done():
            outside = outside or _failure(task)
            task, starts = start_unlisted(work()), starts + 1
        left = end - monotonic()
        if left <= 0:
            break
        try:
            await asyncio.wait([task], timeout=min(CHECK_INTERVAL, left))  # its wake-up may be lost
        except asyncio.CancelledError as error:
            end = min(end, monotonic() + ROUND_TRIP)
            if cancelled is not None:  # its context is replaced where it is raised
                marked(error, ALSO, cancelled)
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if outside is not None:
        raise outside


def _is_interrupted(
    task: asyncio.Future[object], outside: BaseException | None, starts: int
) -> bool:
    """Whether work was cut short and is to be started again."""
    if task.cancelled():
        return starts < MOST_STARTS
    failure = _failure(task)
    return failure is not None and outside is None and not client_errors.is_outcome(failure)


def _failure(task: asyncio.Future[object]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
