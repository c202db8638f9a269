"""The loop of ``run`` while the command runs: signals, the terminal, and the loss of the lock."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping

from redis_lock_decorators.cli.child import Child
from redis_lock_decorators.cli.guard import PAUSE, Guard
from redis_lock_decorators.cli.output import note
from redis_lock_decorators.cli.signals import Signals
from redis_lock_decorators.cli.terminal import Terminal, stop
from redis_lock_decorators.errors import LockError
from redis_lock_decorators.lease import Lease

#: They stop a process in the background that uses the terminal.
TERMINAL_IS_NEEDED = (signal.SIGTTIN, signal.SIGTTOU) if hasattr(signal, "SIGTTIN") else ()
#: Seconds; the guard gets a new deadline at least so often.
LONGEST_PAUSE = 1.0
#: Seconds; after the deadline a lease is lost.
TICK = 0.001
#: Seconds; after SIGKILL a group that is left has zombies only, which another process must reap.
PATIENCE = 2.0


class Supervision:
    """One run of a command under a lease.

    Args:
        child: the process of the command.
        guard: ends the command if this process cannot.
        signals: the signals to forward.
        lease: the lease of the lock.
        kill_after: seconds from SIGTERM to SIGKILL when the lock is lost.

    Attributes:
        is_lost: whether the lock was lost while the command ran.
        was_in_foreground: whether the command had the terminal at its end.
    """

    def __init__(
        self, child: Child, guard: Guard, signals: Signals, lease: Lease, kill_after: float
    ) -> None:
        self.is_lost = self.was_in_foreground = False
        self._child, self._guard, self._signals = child, guard, signals
        self._lease, self._kill_after = lease, kill_after
        self._terminal = Terminal(child.pid)
        self._needs_terminal = False
        self._status: int | None = None
        self._kill_at = self._killed_at = math.inf

    def start(self, variables: Mapping[str, str]) -> None:
        """Start the command with these variables added to the environment.

        Raises:
            LockLostError: the lock was lost since its acquisition.
            OSError: it cannot be executed.
        """
        self._guard.watch(self._lease.deadline)
        self._lease.check()
        self._terminal.lend()
        try:
            self._child.start(variables)
        except OSError:
            self._terminal.take_back()
            raise

    def finish(self) -> int:
        """Wait until the command has ended; return its status as ``os.waitpid`` has it.

        After a loss, wait for its whole process group.
        """
        try:
            status = self._wait()
        except BaseException:  # unexpected: it must not run without the lock
            self._child.signal(signal.SIGKILL)
            raise
        finally:
            self._guard.dismiss()
            self.was_in_foreground = self._terminal.take_back()
        return status

    def _wait(self) -> int:
        while self._status is None or not self._is_group_done():
            self._extend_guard()
            numbers = self._signals.wait(self._pause())
            self._check_lease()
            self._check_terminal()
            for number in numbers:
                self._forward(number)
            self._check_child()
            self._child.reap_orphans()
        return self._status

    def _is_group_done(self) -> bool:
        if not self.is_lost or not self._child.has_group():
            return True
        return time.monotonic() >= self._killed_at + PATIENCE

    def _pause(self) -> float:
        if self.is_lost:
            return PAUSE
        return min(LONGEST_PAUSE, self._lease.expire / 10, self._lease.remaining() + TICK)

    def _extend_guard(self) -> None:
        if not self.is_lost and not self._lease.lost:
            self._guard.watch(self._lease.deadline)

    def _forward(self, number: int) -> None:
        if number != signal.SIGCHLD:
            self._child.signal(number)

    def _check_lease(self) -> None:
        if self.is_lost:
            if time.monotonic() >= self._kill_at:
                self._kill_at, self._killed_at = math.inf, time.monotonic()
                self._guard.watch(math.inf)
                self._child.signal(signal.SIGKILL)
        elif self._lease.lost:
            self._end_command()

    def _end_command(self) -> None:
        self.is_lost = True
        self._kill_at = time.monotonic() + self._kill_after
        self._guard.watch(self._kill_at + LONGEST_PAUSE)  # this process kills first, unless stopped
        try:
            self._lease.check()
        except LockError as loss:
            note(f"{loss}; the command gets SIGTERM")
        self._child.signal(signal.SIGTERM)
        self._child.signal(signal.SIGCONT)  # a stopped process ends when it continues

    def _check_child(self) -> None:
        status = self._child.poll() if self._status is None else None
        if status is not None and os.WIFSTOPPED(status):
            self._follow_stop(os.WSTOPSIG(status))
        elif status is not None:
            self._status = status

    def _follow_stop(self, number: int) -> None:
        """Stop with the command, so that the shell that started ``run`` shows a stopped job."""
        if self.is_lost:
            self._child.signal(signal.SIGCONT)
        elif number in TERMINAL_IS_NEEDED:
            self._needs_terminal = True
            if self._terminal.exists() and not self._terminal.is_ours():
                self._stop(number)
        elif self._terminal.is_ours() or self._terminal.is_childs():
            was_lent = self._terminal.take_back()
            self._stop(number)
            if was_lent:
                self._terminal.give()
            if not self._lease.lost:
                self._child.signal(signal.SIGCONT)

    def _stop(self, number: int) -> None:
        self._child.signal(signal.SIGSTOP)  # all its processes: the lock is no longer renewed
        self._guard.watch(math.inf)
        stop(number)

    def _check_terminal(self) -> None:
        if self._needs_terminal and self._terminal.give():
            self._needs_terminal = False
            self._child.signal(signal.SIGCONT)
