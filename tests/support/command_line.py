"""``redis-lock run`` as a real process, in pipes or as a job of a shell at a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.cli import OPEN_TERMINAL, PATIENCE_SECONDS, PROGRAM, environment

#: Of a shell.
PROMPT = "ready> "


def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


def _set_silent(terminal: int) -> None:
    """Do not echo what is typed, which tests would take for output."""
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def state_of(pid: int) -> str:
    """The state of a process, such as T for stopped (Linux)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()[0]


class Program:
    """A running ``redis-lock``, as a context manager that ends it.

    Args:
        arguments: its command line.
        url: of the server, in ``REDIS_URL``.
        has_terminal: give it a pseudo-terminal, which its standard error uses too.
        command: run this instead, such as a shell.
    """

    def __init__(
        self,
        *arguments: str,
        url: str | None,
        has_terminal: bool = False,
        command: Sequence[str] = (),
    ) -> None:
        self._seen = b""
        self._has_terminal = has_terminal
        pipe = subprocess.PIPE
        options: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
        if has_terminal:
            self._master, slave = pty.openpty()
            _set_silent(slave)
            options = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = subprocess.Popen(
            [*(OPEN_TERMINAL if has_terminal else []), *(command or [*PROGRAM, *arguments])],
            env=environment(url, PS1=PROMPT),
            start_new_session=True,
            **options,
        )
        if has_terminal:
            os.close(slave)
            self._file = self._master
        else:
            assert self.process.stdout is not None
            self._file = self.process.stdout.fileno()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._has_terminal:
            self._has_terminal = False
            os.close(self._master)

    def until(self, text: str) -> str:
        """Read the output up to a text; return what stands before it."""
        wanted, end = text.encode(), time.monotonic() + PATIENCE_SECONDS
        while wanted not in self._seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not appear in {self._seen!r}"
            if select.select([self._file], [], [], left)[0]:
                data = self._read()
                assert data, f"{text!r} did not appear in {self._seen!r}"
                self._seen += data
        before, _, self._seen = self._seen.partition(wanted)
        return before.decode()

    def _read(self) -> bytes:
        try:
            return os.read(self._file, 65536)
        except OSError:  # Linux: the terminal is closed by all its users
            return b""

    def say(self, text: str) -> None:
        """Write to the standard input, or type at the terminal."""
        if self._has_terminal:
            os.write(self._master, text.encode())
        else:
            assert self.process.stdin is not None
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def send(self, number: int) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def code(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        return self.process.wait(PATIENCE_SECONDS)

    def errors(self) -> str:
        """The whole standard error, once the program has ended."""
        assert self.process.stderr is not None, "the terminal has it"
        return self.process.stderr.read().decode()


def ran(*arguments: str, url: str | None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program to its end in pipes."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(url),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
