"""What is found out about the holder of a lock, before it is acquired."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import cache, lru_cache
from typing import Any

from redis_lock_decorators import _lua
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.owner_info import OwnerInfo
from redis_lock_decorators._io.clock import monotonic, unix_time
from redis_lock_decorators._rules.owner_info import (
    MOST_CHARACTERS,
    OwnerInfoOption,
    merged,
    written,
)
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import shown

#: Seconds between two warnings about functions that fail.
PAUSE = 60.0
#: Modules whose functions only call those that acquire locks.
_PASSED = ("redis_lock_decorators", "contextlib")
#: any thread: when the next function that fails is logged
_next_warning: dict[str, float] = {}


def owner_info(
    option: OwnerInfoOption,
    lock_name: str,
    function: Callable[..., object] | None,
    is_async: bool,
) -> OwnerInfo:
    """Return the information about the running thread or task as the next holder of a lock.

    Args:
        option: a function that returns further fields, or True.
        lock_name: for log messages.
        function: the decorated function; None to find the function that acquires the lock.
        is_async: describe the task instead of the thread.
    """
    _lua.load_with_owner_info()
    about = fork.process_id % fork.ADDED, *_unit(is_async), _name(function)
    of_holder, of_process = _texts(*about)
    if callable(option):
        of_holder = written(_with_added(_fields(*about), option, lock_name))
    return OwnerInfo(unix_time() - monotonic(), of_holder, of_process)


@lru_cache(maxsize=256)
def _texts(pid: int, kind: str, unit: str, function: str) -> tuple[str, str]:
    """Return what is stored of a thread or task, and what of its process alone."""
    fields = _fields(pid, kind, unit, function)
    return written(fields), written({"host": fields["host"], "pid": pid})


def _fields(pid: int, kind: str, unit: str, function: str) -> dict[str, object]:
    return {"host": _host(), "pid": pid, kind: _cut(unit), "function": _cut(function)}


def _with_added(
    fields: dict[str, object], option: Callable[[], Any], lock_name: str
) -> dict[str, object]:
    """Return fields with those that a function returns; without, if it fails.

    Those of its method ``essential``, if it has one, are added even then.
    """
    try:
        added = option()
        if isinstance(added, Coroutine):
            added.close()
        return merged(fields, added)
    except Exception as error:
        now = monotonic()
        if now >= _next_warning.get("", now):
            _next_warning[""] = now + PAUSE
            log.warning(
                "owner_info=%s failed for lock %s, which is acquired without its fields (%s)",
                *(shown_value(option), shown(lock_name), described(error)),
            )
        essential: dict[str, object] = getattr(option, "essential", dict)()
        return {**fields, **essential}


def _unit(is_async: bool) -> tuple[str, str]:
    """Return what runs, a task or a thread, and its name."""
    task = asyncio.current_task() if is_async else None
    if task is not None:
        return "task", task.get_name()
    return "thread", threading.current_thread().name


def _name(function: Callable[..., object] | None) -> str:
    """Return the name of a decorated function, or of the function that acquires the lock."""
    if function is not None:
        module = getattr(function, "__module__", None) or "?"
        return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    frame = sys._getframe(1)
    while True:
        module, outer = str(frame.f_globals.get("__name__", "?")), frame.f_back
        if outer is None or module.partition(".")[0] not in _PASSED:
            code = frame.f_code
            return f"{module}.{getattr(code, 'co_qualname', code.co_name)}"
        frame = outer


@cache
def _host() -> str:
    """Return the name of this machine."""
    return _cut(socket.gethostname())


def _cut(text: str) -> str:
    # Of other characters each needs up to twelve bytes in JSON.
    return text[
        : MOST_CHARACTERS if text.isascii() and text.isprintable() else MOST_CHARACTERS // 5
    ]
