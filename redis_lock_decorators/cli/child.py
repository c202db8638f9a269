"""The process of the command: started early, it executes the command once the lock is held.

It is forked while ``run`` has one thread, before there is any connection: a process with threads
cannot be forked safely. Until it is started it waits on a pipe, and ends if ``run`` ends.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from redis_lock_decorators.cli import exit_codes

#: Python ignores them; an executed program would inherit that.
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
#: Given only to the child that holds a fenced lock.
FENCE = "REDIS_LOCK_FENCE"
#: The process ID of the first process of a system or container, which adopts orphans.
INIT = 1


class Child:
    """The process of a command, which leads a process group of its own.

    Args:
        command: the command and its arguments.
        blocked: the signals that the command is to block.

    Attributes:
        pid: its process ID, which is the ID of its group too.
    """

    def __init__(self, command: Sequence[str], blocked: Iterable[int]) -> None:
        gate, gate_write = os.pipe()
        result_read, result = os.pipe()
        flush_output()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(gate_write)
            _become(command, gate, result, blocked)
        self._gate, self._result = os.fdopen(gate_write, "w"), os.fdopen(result_read)
        os.close(gate)
        os.close(result)
        with suppress(OSError):  # both processes do it, as either may run first
            os.setpgid(self.pid, self.pid)

    def start(self, variables: Mapping[str, str]) -> None:
        """Execute the command with these variables added to the environment.

        Raises:
            OSError: it cannot be executed.
        """
        with self._gate as gate:
            json.dump(variables, gate)
        with self._result as result:
            failure = result.read()  # the pipe is closed by the execution
        if failure:
            raise OSError(int(failure), os.strerror(int(failure)))

    def cancel(self) -> None:
        """End the process, unless it has been started."""
        for file in (self._gate, self._result):
            file.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def poll(self) -> int | None:
        """Return a new status of the process as ``os.waitpid`` has it, or None."""
        pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
        return status if pid else None

    def has_group(self) -> bool:
        """Whether its process group has a process, once the command itself has ended.

        A group whose last process is a zombie still gets signals. PID 1 and subreapers adopt
        orphans of the command, and must reap them.
        """
        with suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        return self.signal(0)

    def reap_orphans(self) -> None:
        """Reap the processes that PID 1 of a container has adopted and that have ended.

        Those in the process group of ``run`` have been started by code in it, which waits for them.
        """
        if os.getpid() != INIT:
            return
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self.pid or os.getpgid(found.si_pid) == os.getpgrp():
                    return
                os.waitpid(found.si_pid, os.WNOHANG)

    def signal(self, number: int) -> bool:
        """Send a signal to the process group; return False if there is none any more."""
        return signal_group(self.pid, number)


def flush_output() -> None:
    """Write what Python has buffered, which a forked process would write again."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None if the file was closed
            stream.flush()


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if the group has no process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS: only zombies; else a command that has changed its user
        return sys.platform != "darwin"
    return True


def why_not_executable(command: str) -> OSError | None:
    """Return why a command cannot be executed, as far as that is known before."""
    if shutil.which(command):
        return None
    exists = os.sep in command and os.path.exists(command)
    number = errno.EACCES if exists else errno.ENOENT
    return OSError(number, os.strerror(number))


def code_of(error: OSError) -> int:
    """Return the exit code for a command that cannot be executed."""
    is_absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
    return exit_codes.NOT_FOUND if is_absent else exit_codes.NOT_EXECUTABLE


def _become(command: Sequence[str], gate: int, result: int, blocked: Iterable[int]) -> NoReturn:
    """Wait for the start, then become the command."""
    try:
        os.setpgid(0, 0)
        _reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        with os.fdopen(gate) as messages:
            variables = messages.read()
        if variables:
            os.execvpe(command[0], list(command), _environment(json.loads(variables)))  # noqa: S606
    except OSError as error:
        os.write(result, str(error.errno).encode())
    except UnicodeEncodeError:  # a name that the locale's encoding lacks, in the environment
        os.write(result, str(errno.EILSEQ).encode())
    finally:
        os._exit(exit_codes.NOT_EXECUTABLE)


def _reset_signals() -> None:
    """Set the default action where Python has set another."""
    for name in IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != FENCE}
    return {**own, **variables}
