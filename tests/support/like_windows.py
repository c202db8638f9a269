"""Run a program with the Python functions that Windows has, on another system.

What is missing there is removed: functions of ``os``, ``signal``, ``select`` and ``socket``, whole
modules, and methods of event loops: that of Windows watches no file descriptors.

Usage: python like_windows.py PROGRAM ARGUMENT ...
"""

from __future__ import annotations

import asyncio
import importlib
import os
import runpy
import select
import selectors
import signal
import socket
import sys
from functools import partial
from types import ModuleType
from typing import Any, NoReturn, cast

#: What the documentation of the modules does not list for Windows.
MISSING: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("fork", "forkpty", "register_at_fork", "posix_spawn", "posix_spawnp", "wait", "wait3"),
        *("wait4", "waitid", "killpg", "getpgid", "getpgrp", "setpgid", "setsid", "getsid"),
        *("tcgetpgrp", "tcsetpgrp", "ttyname", "openpty", "uname", "getuid", "geteuid", "getgid"),
        *("getegid", "getloadavg", "nice", "mkfifo", "fchown", "chown", "sysconf", "WNOHANG"),
        *("WUNTRACED", "WNOWAIT", "WEXITED", "P_ALL", "P_PID", "O_NOCTTY", "O_NONBLOCK"),
        *("O_CLOEXEC", "set_blocking", "get_blocking", "pread", "pwrite", "sched_yield"),
    ),
    signal: (
        *("SIGHUP", "SIGKILL", "SIGSTOP", "SIGTSTP", "SIGCONT", "SIGQUIT", "SIGUSR1", "SIGUSR2"),
        *("SIGALRM", "SIGCHLD", "SIGPIPE", "SIGWINCH", "SIGTTIN", "SIGTTOU", "ITIMER_REAL"),
        *("alarm", "pause", "setitimer", "getitimer", "siginterrupt", "pthread_kill"),
        *("pthread_sigmask", "sigpending", "sigwait", "sigwaitinfo", "sigtimedwait"),
    ),
    select: ("poll", "epoll", "kqueue"),
    socket: ("AF_UNIX", "SO_REUSEPORT", "MSG_DONTWAIT", "TCP_USER_TIMEOUT"),
}
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop")
#: Modules of others that need at their import what is removed.
EARLIER = ("click", "concurrent.futures.thread", "logging", "random", "rich.console", "tempfile")


def missing(*_: Any) -> NoReturn:
    raise NotImplementedError


class Loop(asyncio.SelectorEventLoop):
    """An event loop with the public methods that the one of Windows has."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())

    add_reader = add_writer = add_signal_handler = cast(Any, missing)


def remove() -> None:
    """Remove what Windows lacks."""
    for name in EARLIER:
        importlib.import_module(name)
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
    asyncio.events.new_event_loop = Loop
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)  # Windows makes it of others
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.modules.update(dict.fromkeys(MODULES, cast(Any, None)))


if __name__ == "__main__":
    del sys.argv[0]
    remove()
    runpy.run_path(sys.argv[0], run_name="__main__")
