"""Record the sessions of reference/command-line.rst from real runs: ``python docs/record.py``.

Each block after a comment ``.. recorded: NAME`` is replaced by the session of that name.
"""

from __future__ import annotations

import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from redis_lock_decorators import RedisLock
from redis_lock_decorators.inspection import lock_status
from redis_lock_decorators.testing import LocalServer

PAGE = pathlib.Path(__file__).parent / "reference" / "command-line.rst"
PROGRAM = f"{shlex.quote(sys.executable)} -m redis_lock_decorators"
#: Characters in a line of the terminal.
COLUMNS = "96"
BLOCK = re.compile(
    r"(?m)^\.\. recorded: (?P<name>.+)\n\n\.\. code-block:: console\n\n(?:    .*\n|\n(?=    ))*"
)


class Console:
    """A shell at a terminal, for the commands of one session.

    Args:
        server: the server that ``redis-lock`` and the programs use.
        folder: where the programs of the session are; None for the current folder.
    """

    def __init__(self, server: Any, folder: pathlib.Path | None = None) -> None:
        self.text = ""
        self._folder = folder
        python = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._variables = {
            "REDIS_URL": server.url,
            "COLUMNS": COLUMNS,
            "TERM": "dumb",
            "PATH": python,
        }

    def run(self, line: str) -> None:
        """Run a command, or lines of commands; record them with their output."""
        main, terminal = pty.openpty()
        shell = line.replace("redis-lock", PROGRAM)
        with subprocess.Popen(  # noqa: S603 - the commands of this file
            ["bash", "-c", shell],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,  # no progress bars
            cwd=self._folder,
            env={**os.environ, **self._variables},
        ) as program:
            os.close(terminal)
            output = b""
            with suppress(OSError):  # Linux: the program has closed the terminal
                while data := os.read(main, 65536):
                    output += data
            os.close(main)
            output += program.communicate()[1]
        lines = [
            *(f"$ {one}" for one in line.splitlines()),
            *output.decode().expandtabs(4).splitlines(),
        ]
        if program.returncode:
            lines += ["$ echo $?", str(program.returncode)]
        self.text += "".join(f"    {one.rstrip()}\n" if one.strip() else "\n" for one in lines)


@contextmanager
def busy(server: Any) -> Iterator[None]:
    """Hold two locks; two threads wait for one of them."""
    client = server.client()

    def wait() -> None:
        with RedisLock("report", client=client, acquire_time=60):
            time.sleep(0.1)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    with ExitStack() as stack:
        holder = RedisLock("report", client=client, expire=30).acquire()
        stack.enter_context(RedisLock("order:7", client=client, expire=10, fencing=True))
        for number, thread in enumerate(threads, start=1):
            thread.start()
            while lock_status(client, "report").waiting < number:
                time.sleep(0.01)
        try:
            yield
        finally:
            with suppress(Exception):  # "break" has released it
                holder.release()
            for thread in threads:
                thread.join()


def _ls(console: Console, server: Any) -> None:
    with busy(server):
        console.run("redis-lock ls")


def _watch(console: Console, server: Any) -> None:
    with busy(server):
        console.run("redis-lock ls 'r*' --watch --interval 0.5 | head -3")


def _show(console: Console, server: Any) -> None:
    with busy(server):
        console.run("redis-lock show report")


def _run(console: Console, server: Any) -> None:
    console.run("redis-lock run backup -- sh -c 'echo saved as $REDIS_LOCK_NAME'")
    with busy(server):
        console.run("redis-lock run report -- echo never printed")


def _break(console: Console, server: Any) -> None:
    with busy(server):
        console.run("redis-lock break report --yes")
    console.run("redis-lock break report --yes")


def _doctor(console: Console, server: Any) -> None:
    client = server.client()
    console.run("redis-lock doctor")
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    console.run("redis-lock doctor")


def _bench(console: Console, server: Any) -> None:
    console.run("redis-lock bench")


SESSIONS: dict[str, Callable[[Console, Any], None]] = {
    "ls": _ls,
    "ls --watch": _watch,
    "show": _show,
    "run": _run,
    "break": _break,
    "doctor": _doctor,
    "bench": _bench,
}


def recorded(name: str) -> str:
    """The text of a session, indented."""
    with LocalServer() as server:
        console = Console(server)
        SESSIONS[name](console, server)
    return console.text


def sessions(page: str) -> dict[str, str]:
    """The sessions in the page, by name."""
    return {found["name"]: found[0].split("console\n\n")[1] for found in BLOCK.finditer(page)}


def shape(session: str) -> list[str]:
    """The words of a session without what differs between runs.

    That is numbers, units, random values, and where lines are folded.
    """
    text = re.sub(r"\d[\dT:+.-]*", "0", re.sub(r"\b[0-9a-f]{8,}\b", "x", session))
    text = re.sub(r"\b0 hints?\b", "0 hints", text)
    text = re.sub(r"\b0 (?:µs|ms|s|min)\b", "0 t", text)
    return sorted(text.split())


def main() -> None:
    """Replace all sessions in the page."""
    begin = ".. recorded: {}\n\n.. code-block:: console\n\n{}"
    page = BLOCK.sub(
        lambda found: begin.format(found["name"], recorded(found["name"])), PAGE.read_text("utf-8")
    )
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
