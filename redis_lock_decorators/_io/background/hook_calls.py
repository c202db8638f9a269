"""Calls of hooks: in order, on a separate thread, outside all work for locks."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.helper_threads import hook_threads, log_records
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.options import Hook
from redis_lock_decorators._rules.rate_limit import RateLimit

#: The maximum number of queued events; more are dropped.
MOST_WAITING = 10_000
#: Seconds between two log messages about one hook, or about dropped events.
LOG_PERIOD = 60.0
#: Seconds that the end of the interpreter waits for queued events.
EXIT_TIME = 1.0
#: Seconds between two checks whether they are reported.
POLL_INTERVAL = 0.005

#: When a child of multiprocessing waits for events: before its queues are closed, and at its end.
_PRIORITIES = (100, -100)

_registered: set[int] = set()  #: any thread: processes that wait for events when they end
_calling: set[tuple[int, int]] = set()  #: any thread: processes and threads that call hooks
_failures = RateLimit(LOG_PERIOD)
_drops = RateLimit(LOG_PERIOD)


def report(hooks: Sequence[Hook], context: Context, take: Callable[[], Iterable[Any]]) -> None:
    """Have the hooks called with the events that ``take`` will return; from any thread."""
    if (
        _calling and _running() in _calling
    ):  # a hook uses a lock: its events would cause more and more events
        return
    if fork.process_id not in _registered:
        _register_end()
    if len(hook_threads) < MOST_WAITING:
        hook_threads.call(partial(_call, hooks, context, take))
    elif (dropped := _drops.left_out("", monotonic())) is not None:
        message = "%s events about locks were dropped: a hook is slow"
        log_records.call(partial(log.warning, message, dropped + 1))


def flush(seconds: float) -> bool:
    """Wait until the hooks were called with all events; False if not within ``seconds``."""
    end, done = monotonic() + seconds, list[None]()
    hook_threads.call(lambda: done.append(None))
    while not done:
        if monotonic() >= end:
            return False
        time.sleep(POLL_INTERVAL)
    return True


def _call(hooks: Sequence[Hook], context: Context, take: Callable[[], Iterable[Any]]) -> None:
    running = _running()
    _calling.add(running)
    try:
        for event in take():
            for hook in hooks:
                _call_one(hook, context, event)
    finally:
        _calling.discard(running)


def _call_one(hook: Hook, context: Context, event: Any) -> None:
    try:
        context.copy().run(hook, event)  # one context cannot be entered twice at the same time
    except BaseException as error:  # no exception of a hook ends the thread
        left_out = _failures.left_out(id(hook), monotonic())
        if left_out is not None:
            with suppress(Exception):  # raised by a log handler of the program
                log.error("the hook %r failed (%s times before)", hook, left_out, exc_info=error)


def _running() -> tuple[int, int]:
    return fork.process_id, threading.get_ident()


def _register_end() -> None:
    """Have a child of multiprocessing wait for events when it ends, as ``atexit`` is not used."""
    _registered.add(fork.process_id)
    process, util = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.util"))
    if process is None or util is None or process.parent_process() is None:
        return
    for priority in _PRIORITIES:
        util.Finalize(None, _at_exit, exitpriority=priority)


def _at_exit() -> None:
    if not hook_threads.is_idle():
        flush(EXIT_TIME)


atexit.register(_at_exit)
