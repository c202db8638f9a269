"""Which process this is: a forked child has none of its parent's leases and connections."""

from __future__ import annotations

import os

#: This process's number, without the system call that asks for it.
number = os.getpid()


def _renumber() -> None:
    global number
    number = os.getpid()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renumber)
