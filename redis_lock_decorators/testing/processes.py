"""Server processes that end with the process that owns them."""

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
from redis_lock_decorators.testing.guard_connection import GuardConnection

END_SECONDS = 10
LOG_CHARACTERS = 2000


class Processes:
    """The servers of one guard; `folder` contains a folder for each of them.

    They end with `close()`, when this object is garbage-collected, or with the owner's
    process. A forked child of the owner can neither control nor end them.
    """

    def __init__(self) -> None:
        name = f"redis_lock_decorators-{secrets.token_hex(8)}"
        self.folder = pathlib.Path(tempfile.gettempdir(), name)
        self._pids: dict[str, int] = {}
        ours, theirs = socket.socketpair()
        with theirs:
            self._guard = _start_guard(theirs, self.folder)
        self._connection = GuardConnection(ours)
        self._end = weakref.finalize(self, _end, self._connection, self._guard, self.folder)
        os.register_at_fork(after_in_child=functools.partial(_detach, weakref.ref(self)))

    def write(self, name: str, file: str, text: str) -> None:
        """Write a file into the folder of the server `name`."""
        self._open_connection().ask("write", name, file, text)

    def start(self, name: str, command: list[str]) -> None:
        """Start a server; raises ServerFailed if the program cannot be run."""
        self._pids[name] = self._open_connection().ask("start", name, *command)

    def kill(self, name: str) -> None:
        """Kill a server with its children, and wait for its end."""
        self._open_connection().ask("kill", name)
        self._pids.pop(name, None)

    def has_ended(self, name: str) -> bool:
        """Return whether a server that was started has ended."""
        return self._open_connection().ask("poll", name) is not None

    def pid(self, name: str) -> int:
        """Return a server's process id; raises ServerFailed if it was stopped."""
        if not self._end.alive or name not in self._pids:
            raise ServerFailed(f"{name} is not running")
        return self._pids[name]

    def log(self, name: str) -> str:
        """Return the tail of a server's log."""
        path = self.folder / name / guard.LOG
        text = path.read_text("utf-8", errors="replace") if path.exists() else ""
        return text[-LOG_CHARACTERS:]

    def close(self) -> None:
        """End all servers and remove the folder; a second call does nothing."""
        self._end()

    def detach(self) -> None:
        """Detach from the guard without ending it, as a forked child must."""
        self._end.detach()
        # With a copy in the child, the guard would not notice the end of the owner.
        self._connection.close()
        self._guard.returncode = 0

    def _open_connection(self) -> GuardConnection:
        if not self._end.alive:
            raise ServerFailed("the servers are stopped, or belong to the parent process")
        return self._connection


def _start_guard(theirs: socket.socket, folder: pathlib.Path) -> subprocess.Popen[bytes]:
    os.set_blocking(theirs.fileno(), True)  # eventlet's sockets are not, whatever they are set to
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(folder)],
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        # The guard must not get signals to the owner's group (Ctrl-C, a test runner's time-out).
        start_new_session=True,
    )


def _end(
    connection: GuardConnection, process: subprocess.Popen[bytes], folder: pathlib.Path
) -> None:
    connection.shut_down()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # A guard that was killed has not removed the folder.
    shutil.rmtree(folder, ignore_errors=True)


def _detach(reference: weakref.ref[Processes]) -> None:
    if (processes := reference()) is not None:
        processes.detach()
