"""Greenlets in the place of threads: gevent or eventlet put them there."""

from __future__ import annotations

import _thread
import importlib
import socket
import sys
import threading
import time
from types import BuiltinFunctionType
from typing import Any

#: Of so many hubs the last are known, and the first, mostly the program's own: others end.
MOST_HUBS = 64


def are_threads_green() -> bool:
    """Whether new threads are greenlets, or something else that stands for threads."""
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


def are_only_pauses_green() -> bool:
    """Whether greenlets switch in pauses and at sockets, but not at locks: ``thread=False``.

    Who waits for a lock of Python's then stops all greenlets.
    """
    if isinstance(time.sleep, BuiltinFunctionType) or are_threads_green():
        return False
    return socket.socket.__module__.partition(".")[0] in ("gevent", "eventlet")


def hub() -> object:
    """What tells apart the hubs that run greenlets, one to a native thread; 0 for real threads.

    A job that a greenlet library runs on a native thread has a hub of its own, which runs only
    while the job waits. It is known by the greenlet that all others of its thread come from: the
    number of a thread is given again after its end.
    """
    if not are_threads_green():
        return 0
    found = _current()
    if found is None:
        return threading.get_native_id()
    while found.parent is not None:
        found = found.parent
    return found


def is_in_hub() -> bool:
    """Whether this is what runs all greenlets of the thread, so that nothing can be waited for."""
    if not are_threads_green():
        return False
    library = str(getattr(_thread.start_new_thread, "__module__", "")).partition(".")[0]
    if library == "gevent":
        return sys.modules["gevent"].get_hub() is _current()
    if library == "eventlet":
        return sys.modules["eventlet.hubs"].get_hub().greenlet is _current()
    return False


def drop_first(found: dict[Any, Any], most: int) -> None:
    """Forget what came before so many others, but the very first; what uses it keeps it."""
    for number in list(found)[1:-most]:
        found.pop(number, None)


def _current() -> Any:
    """The running greenlet; None where threads are neither real nor greenlets."""
    try:
        return importlib.import_module("greenlet").getcurrent()
    except ImportError:
        return None
