"""Detection of greenlets that replace threads (gevent, eventlet), and of their hubs."""

from __future__ import annotations

import _thread
import importlib
import select
import socket
import sys
import threading
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

#: So many of the latest hubs are remembered, and the first, which is usually the main thread's.
MOST_HUBS = 64
#: The modules of the libraries that start greenlets as if these were threads.
_THREADS = {"gevent": "gevent.thread", "eventlet": "eventlet.green.thread"}


def are_threads_green() -> bool:
    """Whether new threads are greenlets, or another replacement of native threads."""
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


def half_patched() -> str:
    """The library whose greenlets use the sockets, while threads are native; "" if there is none.

    A green socket belongs to the hub of the thread that has opened it: other threads cannot use it.
    """
    module = socket.socket.__module__
    if module == "socket" or are_threads_green():
        return ""
    library = module.partition(".")[0]
    return library if library in _THREADS else ""


def start_half_patched(function: Callable[[], object]) -> bool:
    """Start a greenlet without waiting for it; False if threads can be started instead."""
    library = half_patched()
    if library:
        importlib.import_module(_THREADS[library]).start_new_thread(function, ())
    return bool(library)


def is_select_replaced() -> bool:
    """Whether ``select`` is not native, but lets other greenlets run while it waits."""
    return not isinstance(select.select, BuiltinFunctionType)


def hub() -> object:
    """Identify the hub of the running greenlet, one per native thread; 0 for native threads.

    A job that a greenlet library runs on a native thread has a separate hub, which runs only while
    the job waits. The root greenlet of the thread identifies it: thread numbers are reused.
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
    """Whether this code runs in the hub itself, which must not wait.

    With ``thread=False`` too: then sockets are green, and native threads have hubs of their own.
    """
    green: Any = _thread.start_new_thread
    if isinstance(green, BuiltinFunctionType):  # no further call: each release checks this
        if socket.socket.__module__ == "socket":
            return False
        green = socket.socket
    library = str(getattr(green, "__module__", "")).partition(".")[0]
    # No hub is created: a native thread may have none.
    if library == "gevent":
        return isinstance(_current(), sys.modules["gevent.hub"].Hub)
    if library == "eventlet":
        hub = getattr(sys.modules["eventlet.hubs"]._threadlocal, "hub", None)
        return hub is not None and hub.greenlet is _current()
    return False


def forget_oldest(found: dict[Any, Any], most: int) -> None:
    """Forget all but the first and the last ``most`` entries; their users keep references."""
    for number in list(found)[1:-most]:
        found.pop(number, None)


def _current() -> Any:
    """The running greenlet; None if threads are replaced by something else."""
    try:
        return importlib.import_module("greenlet").getcurrent()
    except ImportError:
        return None
