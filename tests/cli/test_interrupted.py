"""``redis-lock demo`` and ``bench`` that are ended by a signal leave no process and no key."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cli import Program
from support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: The signal, the exit code, and whether the program can delete its keys.
ENDS = [
    pytest.param(signal.SIGTERM, 143, True, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, 129, True, marks=pytest.mark.slow),
    (signal.SIGINT, 130, True),
    (signal.SIGKILL, -9, False),
]


def session(leader: int) -> list[int]:
    """The processes of a session, without zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, leads = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if int(leads) == leader and state != "Z":
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize(("number", "code", "is_tidy"), ENDS)
def test_demo_leaves_no_process(
    server: Any, direct: Any, name: str, number: int, code: int, is_tidy: bool
) -> None:
    prefix = f"{name}:"
    with Program("--prefix", prefix, "demo", url=server.url) as program:
        until(lambda: any(direct.scan_iter(f"{prefix}*:history")))
        os.killpg(program.process.pid, number) if number == signal.SIGINT else program.send(number)

        assert program.code() == code
        until(lambda: not session(program.process.pid))
        assert "Traceback" not in program.errors()  # the tracker of semaphores may warn
    assert not (is_tidy and list(direct.scan_iter(f"{prefix}*:history")))
    for key in direct.scan_iter(f"{prefix}*"):
        direct.delete(key)


@pytest.mark.parametrize(("number", "code"), [end[:2] for end in ENDS if end[2]])
def test_bench_leaves_no_key(server: Any, direct: Any, name: str, number: int, code: int) -> None:
    prefix = f"{name}:"
    with Program("--prefix", prefix, "bench", url=server.url) as program:
        until(lambda: any(direct.scan_iter(f"{prefix}*")))
        program.send(number)

        assert program.code() == code
        assert program.errors() == ""
    assert list(direct.scan_iter(f"{prefix}*")) == []
