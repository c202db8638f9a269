"""Logging from the background: by a thread of its own, which may wait for the handlers."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis_lock_decorators._flow import logs
from redis_lock_decorators._io.background.helper_threads import notes
from redis_lock_decorators._io.background.worker import here
from redis_lock_decorators._io.clock import monotonic

#: So many messages wait for a handler at most; more are dropped, and counted.
MOST_WAITING = 1000
#: Seconds between two looks whether all is logged.
MOMENT = 0.001

_dropped: list[None] = []


def hand_over(log: Callable[[], object]) -> bool:
    """Have something logged by another thread, if this one works in the background."""
    if here() is None:
        return False
    if len(notes) < MOST_WAITING:
        notes.call(lambda: _log(log))
    else:
        _dropped.append(None)
    return True


def flush(seconds: float) -> bool:
    """Wait until all is logged that was handed over; False if it is not by then."""
    end = monotonic() + seconds
    while not notes.is_idle():
        if monotonic() >= end:
            return False
        time.sleep(MOMENT)
    return True


def _log(log: Callable[[], object]) -> None:
    dropped = len(_dropped)
    try:
        log()
        if dropped:
            del _dropped[:dropped]
            logs.log.warning("%s messages about locks were dropped: a handler is slow", dropped)
    except Exception:  # the handler's own, which the background cannot help
        return


logs.log.hand_over = hand_over
