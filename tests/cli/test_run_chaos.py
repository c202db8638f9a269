"""Runs of one lock that are interrupted, killed and stopped at random: one command at a time."""

from __future__ import annotations

import random
import signal
import sys
import time
from typing import Any

import pytest
from support.cli import Program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="run needs fork")

#: Seconds; a lease is so long, and a run is stopped for longer.
EXPIRE, STOPPED = 1.5, 2.0
#: Fails if another command has the file locked. The kernel releases it however a process ends.
COMMAND = """
import fcntl, signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
time.sleep(float(sys.argv[2]))
"""
ALIVE = 4


@pytest.mark.parametrize(
    "seconds", [4, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_one_command_at_a_time(server: Any, name: str, tmp_path: Any, seconds: float) -> None:
    chances = random.Random()
    runs: list[Program] = []
    ended: list[tuple[int, str]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or runs:
        while len(runs) < ALIVE and time.monotonic() < end:
            runs.append(_start(server.url, name, str(tmp_path / "file"), chances))
        time.sleep(chances.uniform(0, 0.3))
        if time.monotonic() < end:
            _disturb(chances.choice(runs), chances)
        for program in [one for one in runs if one.process.poll() is not None]:
            runs.remove(program)
            with program:
                ended.append((program.code(), program.errors()))

    assert [one for one in ended if not _is_expected(*one)] == []


def _start(url: str, name: str, file: str, chances: random.Random) -> Program:
    command = [
        "-c",
        COMMAND,
        file,
        str(chances.choice([0.05, 0.5])),
        chances.choice(["stubborn", ""]),
    ]
    options = ["--on-busy", "wait", "--expire", str(EXPIRE), "--kill-after", "0.2"]
    return Program("run", name, *options, "--", sys.executable, "-S", *command, url=url)


def _disturb(program: Program, chances: random.Random) -> None:
    number = chances.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, None])
    if number is not None:
        program.send(number)
    if number == signal.SIGSTOP:
        time.sleep(chances.choice([0, STOPPED]))
        program.send(signal.SIGCONT)


def _is_expected(code: int, errors: str) -> bool:
    """Whether a run ended as it should; the command fails if it finds another one running."""
    if errors.startswith(("Fatal Python error: init_import_site", "Could not import runpy")):
        return True  # SIGINT reached Python before the program's first line
    killed = (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGTERM)
    return code in (0, 70, *killed) and "BlockingIOError" not in errors
