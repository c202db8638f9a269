"""The current process: a forked child does not own the leases and connections of its parent.

The hooks of a fork run in the order of their registration. Those of the program may be registered
before this module is imported, and use locks in the child before its number is renewed here. So
there is no number during a fork: then the module's ``__getattr__`` asks the system.
"""

from __future__ import annotations

import os

#: The process ID, without a system call; set and removed by any thread that forks.
number = os.getpid()

#: any thread: one item for each fork that is under way
_forks: list[None] = []


def __getattr__(name: str) -> int:
    if name != "number":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return os.getpid()


def _before() -> None:
    _forks.append(None)
    _remove_number()


def _after_in_parent() -> None:
    if _forks:
        _forks.pop()
    if not _forks:
        _set_number()
    if _forks:  # another thread has begun to fork in between
        _remove_number()


def _after_in_child() -> None:
    _forks.clear()  # other threads that were forking do not exist here
    _set_number()


def _set_number() -> None:
    global number
    number = os.getpid()


def _remove_number() -> None:
    globals().pop("number", None)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
