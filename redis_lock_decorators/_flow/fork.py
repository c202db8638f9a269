"""The current process: a forked child does not own the leases and connections of its parent.

The hooks of a fork run in the order of their registration. Those of the program may be registered
before this module is imported, and use locks in the child before its process ID is renewed here.
While a thread forks, the process ID is deleted and ``__getattr__`` reads ``os.getpid()`` each time.
"""

from __future__ import annotations

import os

#: The process ID, without a system call; set and removed by any thread that forks.
process_id = os.getpid()

#: any thread: one item for each fork that is under way
_forks: list[None] = []


def __getattr__(name: str) -> int:
    if name != "process_id":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return os.getpid()


def _before() -> None:
    _forks.append(None)
    _remove_process_id()


def _after_in_parent() -> None:
    if _forks:
        _forks.pop()
    if not _forks:
        _set_process_id()
    if _forks:  # another thread has begun to fork in between
        _remove_process_id()


def _after_in_child() -> None:
    _forks.clear()  # other threads that were forking do not exist here
    _set_process_id()


def _set_process_id() -> None:
    global process_id
    process_id = os.getpid()


def _remove_process_id() -> None:
    globals().pop("process_id", None)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
