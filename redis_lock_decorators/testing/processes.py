"""Server processes that never outlive the process that owns them."""

import functools
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref

from redis_lock_decorators.testing import guard
from redis_lock_decorators.testing.errors import ServerFailed
from redis_lock_decorators.testing.line import Line

LEAVE_SECONDS = 10
LOG_CHARACTERS = 2000


class Processes:
    """The servers of one guard; `folder` holds a folder for each of them.

    They end with `close()`, when this object is collected, or when the owner dies.
    A forked child of the owner can neither control nor end them.
    """

    def __init__(self) -> None:
        name = f"redis_lock_decorators-{secrets.token_hex(8)}"
        self.folder = pathlib.Path(tempfile.gettempdir(), name)
        self._pids: dict[str, int] = {}
        ours, theirs = socket.socketpair()
        with theirs:
            self._guard = _start_guard(theirs, self.folder)
        self._line = Line(ours)
        self._end = weakref.finalize(self, _end, self._line, self._guard, self.folder)
        os.register_at_fork(after_in_child=functools.partial(_let_go, weakref.ref(self)))

    def write(self, name: str, file: str, text: str) -> None:
        """Write a file into the folder of the server `name`."""
        self._open_line().ask("write", name, file, text)

    def start(self, name: str, command: list[str]) -> None:
        """Start a server; raises ServerFailed if the program cannot be run."""
        self._pids[name] = self._open_line().ask("start", name, *command)

    def kill(self, name: str) -> None:
        """Kill a server at once, with its children, and wait for its end."""
        self._open_line().ask("kill", name)
        self._pids.pop(name, None)

    def has_ended(self, name: str) -> bool:
        """Say whether a server that was started has ended."""
        return self._open_line().ask("poll", name) is not None

    def pid(self, name: str) -> int:
        """Return a server's process id; raises ServerFailed if it was stopped."""
        if not self._end.alive or name not in self._pids:
            raise ServerFailed(f"{name} is not running")
        return self._pids[name]

    def log(self, name: str) -> str:
        """Return the tail of what a server wrote."""
        path = self.folder / name / guard.LOG
        said = path.read_text("utf-8", errors="replace") if path.exists() else ""
        return said[-LOG_CHARACTERS:]

    def close(self) -> None:
        """End all servers and remove the folder; does nothing the second time."""
        self._end()

    def let_go(self) -> None:
        """Give the guard up without ending it, as a forked child must."""
        self._end.detach()
        # A copy in the child would hide the owner's death from the guard.
        self._line.forget()
        self._guard.returncode = 0

    def _open_line(self) -> Line:
        if not self._end.alive:
            raise ServerFailed("the servers are stopped, or belong to the parent process")
        return self._line


def _start_guard(theirs: socket.socket, folder: pathlib.Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(folder)],
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        # Signals to the owner's group (Ctrl-C, a runner's time-out) are not for the guard.
        start_new_session=True,
    )


def _end(line: Line, process: subprocess.Popen[bytes], folder: pathlib.Path) -> None:
    line.hang_up()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Only a guard that was killed leaves the folder behind.
    shutil.rmtree(folder, ignore_errors=True)


def _let_go(reference: weakref.ref[Processes]) -> None:
    if (processes := reference()) is not None:
        processes.let_go()
