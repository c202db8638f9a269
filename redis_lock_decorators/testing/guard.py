"""The process that runs the servers of one owner, and ends them when the owner ends.

Run by its path as a separate process, with only the standard library. The argument
is the folder to create. Each line on standard input is a request as JSON, `[number,
verb, *words]`; the reply is a line `[number, value, error]`. At the end of the input,
however the owner ends, it kills the servers and removes the folder.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

LOG = "server.log"


class Guard:
    """Starts and kills servers, each in a separate folder inside `folder`."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._bind_to_guard = _binder()

    def answer(self, line: bytes) -> bytes:
        """Execute a request and return the reply."""
        number, verb, *words = json.loads(line)
        reply: list[Any] = [number, None, None]
        try:
            reply[1] = getattr(self, verb)(*words)
        except OSError as error:
            reply[2] = str(error)
        return json.dumps(reply).encode() + b"\n"

    def write(self, name: str, file: str, text: str) -> None:
        """Write a file into a server's folder."""
        self._home(name).joinpath(file).write_text(text, "utf-8")

    def start(self, name: str, *command: str) -> int:
        """Start a server, killing one of this name, and return its process id."""
        if name in self._servers:
            self.kill(name)
        home = self._home(name)
        with (home / LOG).open("ab") as log:
            server = subprocess.Popen(
                command,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._bind_to_guard,
            )
        self._servers[name] = server
        return server.pid

    def poll(self, name: str) -> int | None:
        """Return a server's exit status, or None while it runs."""
        return self._servers[name].poll()

    def kill(self, name: str) -> int:
        """Kill a server with its children, and return its exit status."""
        server = self._servers[name]
        if server.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(server.pid, signal.SIGKILL)
        return server.wait()

    def end(self) -> None:
        """Kill every server and remove the folder."""
        for name in self._servers:
            self.kill(name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _home(self, name: str) -> pathlib.Path:
        home = self._folder / name
        home.mkdir(exist_ok=True)
        return home


def main() -> None:
    """Serve the owner until the standard input ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit())
    # Ctrl-C is for the owner, which may still need its servers for an orderly end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard = Guard(pathlib.Path(sys.argv[1]))
    try:
        for line in sys.stdin.buffer:
            os.write(sys.stdout.fileno(), guard.answer(line))
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        guard.end()


def _binder() -> Callable[[], object] | None:
    # If the guard itself is killed, Linux kills its servers.
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:
        return None
    control, set_death_signal = ctypes.CDLL(None).prctl, 1
    return lambda: control(set_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
