"""The current process: a forked child does not own the leases and connections of its parent."""

from __future__ import annotations

import os

#: The process ID, without a system call.
number = os.getpid()


def _renumber() -> None:
    global number
    number = os.getpid()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renumber)
