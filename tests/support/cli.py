"""The program ``redis-lock`` as a real process, in pipes or at a pseudo-terminal of some width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis_lock_decorators
from redis_lock_decorators import RedisLock
from redis_lock_decorators.inspection import lock_status
from support.waiting import until

PROGRAM = [sys.executable, "-m", "redis_lock_decorators"]
#: The leader of a session that opens a terminal gets it as the controlling one: Ctrl-C works.
OPEN_TERMINAL = [
    sys.executable,
    "-Sc",
    "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])",
]
PATIENCE_SECONDS = 30.0
#: Of a shell.
PROMPT = "ready> "
HEIGHT = 50
#: Variables that change the colours or the width.
LOOKS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "TTY_COMPATIBLE")


@dataclass(frozen=True)
class Done:
    """A program that has ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The output without colours and other escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.out).splitlines()


def environment(url: str | None, **more: str) -> dict[str, str]:
    """The environment of a program that finds this package and this server only."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
    for name in LOOKS:
        found.pop(name, None)
    found |= {"TERM": "xterm-256color", "PS1": PROMPT}
    found["PYTHONPATH"] = str(Path(redis_lock_decorators.__file__).parents[1])
    return {**found, **({} if url is None else {"REDIS_URL": url}), **more}


def ran(*arguments: str, given: str = "", **options: Any) -> Done:
    """Run ``Program`` with these options to its end; ``given`` is its standard input."""
    with Program(*arguments, **options) as program:
        if given:
            program.write(given)
        return program.done()


class Program:
    """A running ``redis-lock``, as a context manager that ends it.

    Args:
        arguments: its command line.
        url: of the server, in ``REDIS_URL``.
        width: in characters, of the pseudo-terminal that it gets; 0 for pipes.
        command: run this instead, such as a shell.
        cwd: its working directory.
        stderr_too: write the standard error to the terminal, too.
        more: further variables of its environment.
    """

    def __init__(
        self,
        *arguments: str,
        url: str | None = None,
        width: int = 0,
        command: Sequence[str] = (),
        cwd: Path | None = None,
        stderr_too: bool = False,
        **more: str,
    ) -> None:
        self._seen = self._errors = b""
        self.terminal: int | None = None
        opened: list[str] = []
        files: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        if width:
            self.terminal, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
            _set_silent(slave)
            files.update(stdin=slave, stdout=slave, **({"stderr": slave} if stderr_too else {}))
            opened = OPEN_TERMINAL
        self.process = subprocess.Popen(
            [*opened, *(command or [*PROGRAM, *arguments])],
            env=environment(url, **more),
            start_new_session=True,
            cwd=cwd,
            **files,
        )
        if width:
            os.close(slave)

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
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None

    def send(self, number: int) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def code(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        return self.process.wait(PATIENCE_SECONDS)

    def write(self, text: str) -> None:
        """Write to the standard input, or type at the terminal."""
        if self.terminal is not None:
            os.write(self.terminal, text.encode())
            return
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def until(self, text: str) -> str:
        """Read the output up to a text; return what stands before it."""
        before, self._seen = self._read_until(text, self._output(), self._seen)
        return before

    def until_error(self, text: str) -> str:
        """The same with the standard error."""
        assert self.process.stderr is not None
        before, self._errors = self._read_until(text, self.process.stderr.fileno(), self._errors)
        return before

    def _read_until(self, text: str, file: int, seen: bytes) -> tuple[str, bytes]:
        wanted, end = text.encode(), time.monotonic() + PATIENCE_SECONDS
        while wanted not in seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not appear in {seen!r}"
            if select.select([file], [], [], left)[0]:
                data = _read(file)
                assert data, f"{text!r} did not appear in {seen!r}"
                seen += data
        before, _, rest = seen.partition(wanted)
        return _text(before), rest

    def close_output(self) -> None:
        """Stop reading, as ``head`` does."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def errors(self) -> str:
        """Wait for the end; return the standard error."""
        while self.process.stderr is not None and (data := _read(self.process.stderr.fileno())):
            self._errors += data
        return _text(self._errors)

    def done(self) -> Done:
        """Wait for the end; return what was written and not yet read."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        while data := _read(self._output()):
            self._seen += data
        errors, code = self.errors(), self.code()
        return Done(code, _text(self._seen), errors)

    def _output(self) -> int:
        if self.terminal is not None:
            return self.terminal
        assert self.process.stdout is not None
        return self.process.stdout.fileno()


@contextmanager
def crowd(server: Any, client: Any, name: str, count: int, turns: int = 1) -> Iterator[Any]:
    """Hold a lock while so many threads wait for it, each for so many turns; yield the lease."""
    lock = RedisLock(name, client=server.client(), acquire_time=60)

    def work() -> None:
        for _ in range(turns):
            with lock:
                pass

    threads = [threading.Thread(target=work) for _ in range(count)]
    with RedisLock(name, client=client) as lease:
        for number, thread in enumerate(threads, start=1):
            thread.start()
            until(lambda number=number: lock_status(client, name).waiting == number)
        yield lease
    for thread in threads:
        thread.join()


def state_of(pid: int) -> str:
    """The state of a process, such as T for stopped (Linux)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()[0]


def _set_silent(terminal: int) -> None:
    """Do not echo what is typed, which tests would take for output."""
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # Linux: all users of the terminal have closed it
        return b""


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n")
