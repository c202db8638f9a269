"""The ID of the current process, by which a forked child knows what belongs to its parent.

The hooks of a fork run in the order of their registration. Those of the program may be registered
before this module is imported, and use locks in the child before its process ID is renewed here.
While a thread forks, the process ID is deleted and ``__getattr__`` reads ``os.getpid()`` each time.

A child may have the process ID of its parent: the first processes of two PID namespaces have 1. The
child then adds ``ADDED`` to its own.
"""

from __future__ import annotations

import os

#: The process ID, without a system call; set and removed by any thread that forks.
process_id = os.getpid()

#: What is added; ``process_id % ADDED`` is that of the system.
ADDED = 2**32

#: any thread: one item for each fork that is under way
_forks: list[None] = []

_added = 0  # written by a child, which has one thread then
_parent = 0  #: any thread


def __getattr__(name: str) -> int:
    if name != "process_id":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _identity()


def _identity() -> int:
    return os.getpid() + _added


def _before() -> None:
    global _parent
    _parent = _identity()
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
    global _added
    if _identity() == _parent:
        _added += ADDED
    _forks.clear()  # other threads that were forking do not exist here
    _set_process_id()


def _set_process_id() -> None:
    global process_id
    process_id = _identity()


def _remove_process_id() -> None:
    globals().pop("process_id", None)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
