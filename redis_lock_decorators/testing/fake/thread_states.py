"""Whether a thread waits for other threads, judged by the line that it is at."""

from __future__ import annotations

import concurrent.futures.thread
import selectors
import threading
from collections.abc import Callable, Collection, Mapping
from types import FrameType
from typing import Any

from redis_lock_decorators._io.background import hub_threads

Locals = Mapping[str, Any]


def has_sockets(selector: selectors.BaseSelector) -> bool:
    """Whether a selector of an event loop waits for more than calls of other threads."""
    return len(selector.get_map() or ()) > 1


def is_waiting(frame: FrameType, running: Collection[int]) -> bool:
    """Whether the innermost frame of a thread waits for other threads, without a limit.

    A wait with a limit ends by itself, in real time, as does any other call that blocks.
    ``running`` has the identifiers of all threads.
    """
    code = frame.f_code
    check = _CHECKS.get((code.co_filename, code.co_name))
    if check is None or frame.f_locals.get("timeout") not in (None, -1):
        return False
    return check(frame.f_locals, running)


def _is_unnotified(found: Locals, _: Collection[int]) -> bool:
    """In ``Condition.wait``, which events, queues and futures use."""
    waiter = found.get("waiter")
    return waiter is not None and waiter.locked() and waiter in found["self"]._waiters


def _joins(found: Locals, running: Collection[int]) -> bool:
    """In ``Thread.join``."""
    return found["self"].ident in running


def _has_no_work(found: Locals, _: Collection[int]) -> bool:
    """In a thread of a ``ThreadPoolExecutor``."""
    work_queue = found.get("work_queue")
    return work_queue is not None and work_queue.empty()


def _selects(found: Locals, _: Collection[int]) -> bool:
    """In an event loop without timers."""
    return not has_sockets(found["self"])


def _lingers(found: Locals, _: Collection[int]) -> bool:
    """In the thread that calls hooks."""
    return True


_CHECKS: dict[tuple[str, str], Callable[[Locals, Collection[int]], bool]] = {
    (threading.__file__, "wait"): _is_unnotified,
    (threading.__file__, "join"): _joins,
    (threading.__file__, "_wait_for_tstate_lock"): _joins,
    (concurrent.futures.thread.__file__, "_worker"): _has_no_work,
    (selectors.__file__, "select"): _selects,
    (hub_threads.__file__, "_lingers"): _lingers,
}
