"""Outputs of ``redis-lock`` that cannot be written: full disks, closed pipes, other encodings."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Done, Program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")

VERBS = ["--help", "ls", "show {name}", "ls --json", "doctor --all --json", "doctor --acl x"]
NO_SPACE = "redis-lock: the output: No space left on device\n"


@pytest.fixture
def held(direct: Any, name: str) -> Any:
    """Enough locks for more than the buffer of a pipe."""
    names = [f"sys:lock:{name}", *(f"sys:lock:{name}:{'x' * 900}:{n}" for n in range(200))]
    for each in names:
        direct.set(each, "external", px=60_000)
    yield name
    direct.delete(*names)


def shell(line: str, url: str, **variables: str) -> Done:
    program = shlex.join(PROGRAM)
    command = ["bash", "-c", line.replace("redis-lock", program)]
    variables["PYTHONUNBUFFERED"] = ""  # Python would drop the rest of a write that was cut short
    with Program(command=command, url=url, **variables) as running:
        done = running.done()
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err
    return done


@pytest.mark.parametrize("verb", VERBS)
def test_full_disk_is_reported_as_such(server: Any, held: str, verb: str) -> None:
    done = shell(f"redis-lock {verb.format(name=held)} >/dev/full", server.url)

    assert done.code == 74
    assert done.err.endswith(NO_SPACE)
    assert "server" not in done.err.replace(NO_SPACE, "")


@pytest.mark.parametrize("verb", ["ls", "ls --json", "ls --watch", "show {name} --watch --json"])
def test_reader_that_ends_gives_141(server: Any, held: str, verb: str) -> None:
    line = f"redis-lock {verb.format(name=held)} --interval 0.1 | head -1; echo ${{PIPESTATUS[0]}}"
    done = shell(line, server.url)

    assert done.out.splitlines()[-1] == "141"
    assert done.err == ""


@pytest.mark.parametrize(("verb", "code"), [("show free", 1), ("ls [", 0), ("show ''", 2)])
@pytest.mark.parametrize("closed", ["2>/dev/full", "2>&-", ">&-", ">&- 2>&-"])
def test_message_that_cannot_be_written_changes_nothing(
    server: Any, verb: str, code: int, closed: str
) -> None:
    assert shell(f"redis-lock {verb} {closed}", server.url).code == code


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_encoding_without_a_character_escapes_it(
    server: Any, direct: Any, name: str, encoding: str
) -> None:
    direct.set(f"sys:lock:{name}:ключ", "0123456789abcdef" * 2, px=60_000)
    done = shell("redis-lock ls", server.url, PYTHONIOENCODING=encoding)
    full = shell("redis-lock ls >/dev/full", server.url, PYTHONIOENCODING=encoding)
    direct.delete(f"sys:lock:{name}:ключ")

    assert done.code == 0
    assert name in done.out
    assert full.code == 74
