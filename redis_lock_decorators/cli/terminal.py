"""The terminal: the command's process group gets it, as it would from a shell.

SIGTTOU must be ignored: a process in the background changes the foreground.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from redis_lock_decorators.cli.child import flush_output


class Terminal:
    """The controlling terminal, if there is one, and the foreground process group.

    Args:
        child: the ID of the command's process group.
    """

    def __init__(self, child: int) -> None:
        self._child = child
        self._own = os.getpgrp()
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)

    def exists(self) -> bool:
        """Whether there is a terminal."""
        return self._foreground() is not None

    def is_ours(self) -> bool:
        """Whether the group of ``run`` is in the foreground."""
        return self._foreground() == self._own

    def is_childs(self) -> bool:
        """Whether the group of the command is in the foreground."""
        return self._foreground() == self._child

    def lend(self) -> None:
        """Put the command into the foreground at its start if it is interactive.

        In a pipeline others may read the terminal: there the command gets it when it asks for it.
        """
        if os.isatty(0) and os.isatty(1):
            self.give()

    def give(self) -> bool:
        """Put the command into the foreground if ``run`` is there; return whether it is there."""
        if self.is_ours():
            self._put(self._child)
        return self.is_childs()

    def take_back(self) -> bool:
        """Put ``run`` into the foreground if the command was there; return whether it was."""
        was_childs = self.is_childs()
        if was_childs:
            self._put(self._own)
        return was_childs

    def _foreground(self) -> int | None:
        if self._file is not None:
            with suppress(OSError):  # the terminal was closed
                return os.tcgetpgrp(self._file)
        return None

    def _put(self, group: int) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.tcsetpgrp(self._file, group)


def stop(number: int) -> None:
    """Stop this process and its group, as the terminal does; return when it is continued."""
    handler = None if number == signal.SIGSTOP else signal.signal(number, signal.SIG_DFL)
    flush_output()
    os.killpg(os.getpgrp(), number)
    if handler is not None:
        signal.signal(number, handler)
