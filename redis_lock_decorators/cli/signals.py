"""Signals: those to ``run`` interrupt its wait, later they go to the command.

Other verbs clean up before they end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.pipes import is_readable

#: While ``run`` waits for the lock they end it, unless they were ignored when it was started.
ENDING = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
#: Forwarded while the command runs, in addition to those above.
OTHERS = ("SIGWINCH", "SIGCONT", "SIGTSTP")
#: In the place of a number: another thread wakes the main thread.
WAKE = 0


def ending() -> list[int]:
    """Return the numbers of the signals that end ``run`` while it waits."""
    return [getattr(signal, name) for name in ENDING]


class Interrupted(BaseException):
    """A signal ended the command, or ``run`` before the command was started.

    Attributes:
        number: the number of the signal.
        whole_group: the command was in the foreground, where ``run`` would have been without it.
    """

    def __init__(self, number: int, whole_group: bool = False) -> None:
        super().__init__(number)
        self.number = number
        self.whole_group = whole_group


class Signals:
    """Handlers that first raise ``Interrupted``, and from ``record`` on collect the numbers."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._raises = True
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._install(ENDING)

    def record(self) -> None:
        """Collect signals from now on."""
        self._raises = False
        self._install(("SIGCHLD", *OTHERS))
        # The command may be in the foreground: this process uses the terminal all the same.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def wake(self, *_: object) -> None:
        """Wake the main thread; any thread may call it, with any arguments."""
        with suppress(BlockingIOError):  # full: the main thread will wake anyway
            os.write(self._write, bytes([WAKE]))

    def wait(self, seconds: float) -> list[int]:
        """Return the signals since the last call; wait for one at most so long."""
        if not is_readable(self._read, seconds):
            return []
        return [number for number in os.read(self._read, 4096) if number != WAKE]

    def _install(self, names: Iterable[str]) -> None:
        for name in names:
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._raises:
            self._raises = False  # a second signal must not interrupt the release
            raise Interrupted(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program by an exception, so that it cleans up."""

    def end(number: int, _: object) -> None:
        for each in former:
            signal.signal(each, signal.SIG_IGN)  # a second one must not interrupt that
        sys.exit(exit_codes.SIGNALLED + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    former = {
        number: signal.signal(number, end)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Delay SIGINT; processes that are started in this block never get it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def end_by_interrupt(whole_group: bool) -> None:
    """End by SIGINT, so that a shell that runs this program in a loop leaves the loop.

    Args:
        whole_group: send it to the whole process group, as Ctrl-C would have if the command
            had not been in the foreground.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if whole_group:
        os.killpg(os.getpgrp(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
