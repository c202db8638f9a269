"""Logging from the background: on a separate thread, which may wait for slow handlers."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis_lock_decorators._flow import logs
from redis_lock_decorators._io.background.helper_threads import log_records
from redis_lock_decorators._io.background.worker import running_worker
from redis_lock_decorators._io.clock import monotonic

#: The maximum number of queued messages; more are dropped and counted.
MOST_WAITING = 1000
#: Seconds between two checks whether everything is logged.
POLL_INTERVAL = 0.001

_dropped: list[None] = []  #: any thread


def hand_over(log: Callable[[], object]) -> bool:
    """Log on another thread if this one does background work; returns whether it does."""
    if running_worker() is None:
        return False
    if len(log_records) < MOST_WAITING:
        log_records.call(lambda: _log(log))
    else:
        _dropped.append(None)
    return True


def flush(seconds: float) -> bool:
    """Wait until everything is logged; False if it is not within ``seconds``."""
    end = monotonic() + seconds
    while not log_records.is_idle():
        if monotonic() >= end:
            return False
        time.sleep(POLL_INTERVAL)
    return True


def _log(log: Callable[[], object]) -> None:
    dropped = len(_dropped)
    try:
        log()
        if dropped:
            del _dropped[:dropped]
            logs.log.warning("%s messages about locks were dropped: a log handler is slow", dropped)
    except Exception:  # raised by a handler of the program
        return


logs.log.hand_over = hand_over
