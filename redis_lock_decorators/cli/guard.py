"""The guard: a second process that ends the command if ``run`` itself cannot.

A command must not run longer than its lock is held. If ``run`` is killed, a pipe to the guard is
closed. If ``run`` is stopped or hangs, it sends no later deadline. In both cases the guard ends the
process group of the command: SIGTERM, and SIGKILL some seconds later. It needs nothing but POSIX,
and reaches background processes too, unlike ``PR_SET_PDEATHSIG`` of Linux.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import time
from contextlib import suppress
from typing import NoReturn

from redis_lock_decorators.cli.child import signal_group
from redis_lock_decorators.cli.output import note
from redis_lock_decorators.cli.pipes import is_readable

#: A deadline, in seconds of ``time.monotonic()``, which all processes of a machine share.
MESSAGE = struct.Struct("=d")
#: Sent instead of a deadline: the command has ended.
DONE = -math.inf
#: Seconds after the deadline: ``run`` itself acts first unless it is stopped. Leases end before
#: their keys expire: by 1 % of ``expire``.
GRACE = 0.05
#: Seconds between two checks whether the group has ended.
PAUSE = 0.05
#: The files that this process has open, on Linux and macOS; elsewhere so many are closed.
OPEN_FILES, MOST_FILES = "/dev/fd", 4096


class Guard:
    """The guard's process, which watches over a process group.

    Args:
        group: the ID of the process group.
        kill_after: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, group: int, kill_after: float) -> None:
        read, self._write = os.pipe()
        self._last = math.inf
        self._pid = os.fork()
        if self._pid == 0:
            _guard(read, group, kill_after)
        os.close(read)
        with suppress(OSError):
            os.setpgid(self._pid, self._pid)

    def watch(self, deadline: float) -> None:
        """End the command at this time, unless a later deadline arrives; infinity for never."""
        if deadline != self._last:
            self._last = deadline
            with suppress(BrokenPipeError):  # it was killed, or has done its work
                os.write(self._write, MESSAGE.pack(deadline))

    def dismiss(self) -> None:
        """End the guard, as the command has ended; a second call does nothing."""
        if self._last == DONE:
            return
        self.watch(DONE)
        os.close(self._write)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _guard(messages: int, group: int, kill_after: float) -> NoReturn:
    try:
        os.setpgid(0, 0)  # signals of the terminal go to other groups
        _ignore_signals()
        _keep_open(messages)
        reason = _watch(messages)
        if reason is not None and signal_group(group, 0):
            note(f"{reason}: the command gets SIGTERM")
            _end(group, kill_after)
    finally:
        os._exit(0)


def _ignore_signals() -> None:
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def _keep_open(messages: int) -> None:
    """Close all files but this one and the standard error.

    Also the other end of its pipe: otherwise the pipe does not end when ``run`` is killed.
    """
    try:
        files = [int(name) for name in os.listdir(OPEN_FILES)]
    except OSError:
        files = list(range(MOST_FILES))
    for file in files:
        if file > 2 and file != messages:
            with suppress(OSError):  # the one by which the folder was read is closed
                os.close(file)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _watch(messages: int) -> str | None:
    """Return why the command must be ended, or None if it has ended."""
    deadline = math.inf
    while deadline != DONE:
        if not is_readable(messages, deadline + GRACE - time.monotonic()):
            return "redis-lock is stopped or hangs, and the lease of the lock has ended"
        message = os.read(messages, MESSAGE.size)
        if len(message) < MESSAGE.size:
            return "redis-lock was killed"
        (deadline,) = MESSAGE.unpack(message)
    return None


def _end(group: int, kill_after: float) -> None:
    end = time.monotonic() + kill_after
    signal_group(group, signal.SIGTERM)
    signal_group(group, signal.SIGCONT)  # a stopped process ends when it continues
    while signal_group(group, 0) and time.monotonic() < end:
        time.sleep(PAUSE)
    signal_group(group, signal.SIGKILL)
