"""What ``asyncio.wait_for`` waits for: before Python 3.12 it may swallow a cancellation.

It then returns the result of what it waits for if that is done, although its task was cancelled in
the meantime. Many clients, such as redis-py, send their requests by it.
"""

from __future__ import annotations

import asyncio
import gc
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

#: The attributes of suspended code that have its frame, and what it awaits.
SUSPENDED = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}
_code: Any = asyncio.wait_for.__code__


def waited_for(task: asyncio.Task[Any]) -> list[asyncio.Future[Any]]:
    """What the calls of ``asyncio.wait_for`` wait for in which a task is suspended.

    Calls in tasks that it awaits are included.
    """
    found: list[asyncio.Future[Any]] = []
    suspended: Any = task
    while suspended is not None:
        if isinstance(suspended, asyncio.Task):
            suspended = suspended.get_coro()
        attributes = SUSPENDED.get(type(suspended))
        if attributes is None:
            suspended = _iterated(suspended)
            continue
        frame, awaited = (getattr(suspended, attribute) for attribute in attributes)
        if frame is not None and frame.f_code is _code:
            future = frame.f_locals.get("fut")
            if isinstance(future, asyncio.Future):
                found.append(future)
                awaited = future if isinstance(future, asyncio.Task) else None
        suspended = awaited
    return found


def _iterated(iterator: object) -> object:
    """The suspended code or task that this is the iterator of, if any."""
    for other in gc.get_referents(iterator):
        if type(other) in SUSPENDED or isinstance(other, asyncio.Task):
            return other
    return None
