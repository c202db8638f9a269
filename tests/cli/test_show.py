"""``redis-lock ls`` and ``show``: which locks are held, and who waits."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.cli import Program, crowd, ran

from redis_lock_decorators import RedisLock


@pytest.fixture
def held(direct: Any, name: str) -> Any:
    """A held lock."""
    with RedisLock(name, client=direct, fencing=True) as lease:
        yield lease


def test_held_lock_is_listed_in_a_pipe(server: Any, name: str, held: Any) -> None:
    done = ran("ls", f"{name}*", url=server.url)

    titles, row = (line.split("\t") for line in done.out.splitlines())
    assert titles == ["holder", "time left", "waiting", "fence", "lock"]
    assert row[0] == f"{held.identifier[:8]}…"
    assert row[2:] == ["0", str(held.fence), name]
    assert (done.code, done.err) == (0, "")


def test_held_lock_is_shown_as_json(server: Any, name: str, held: Any) -> None:
    done = ran("show", name, "--json", url=server.url)

    found = json.loads(done.out)
    assert (found["identifier"], found["fence"]) == (held.identifier, held.fence)
    assert found["waiters"] == []
    assert 0 < found["remaining"] <= 10


def test_tables_fit_the_terminal(server: Any, direct: Any, name: str) -> None:
    long_name = name + "/part" * 30
    with RedisLock(long_name, client=direct):
        narrow = ran("ls", f"{name}*", url=server.url, width=80)
        wide = ran("ls", f"{name}*", url=server.url, width=200, NO_COLOR="1")
        shown = ran("show", long_name, url=server.url, width=80)

    assert max(map(len, narrow.lines + shown.lines)) <= 80
    assert narrow.lines[1].endswith("…")
    assert shown.lines[0].endswith("…")
    assert long_name[:100] in wide.lines[1]
    assert "\x1b[1mholder" in narrow.out
    assert not re.search(r"\x1b\[(3|9|4)\d", wide.out), "a colour"


def test_control_characters_of_names_are_escaped(server: Any, direct: Any, name: str) -> None:
    with RedisLock(f"{name}\x1b[31m\n", client=direct):
        done = ran("ls", f"{name}*", url=server.url)

    assert done.out.endswith(f"{name}\\x1b[31m\\n\n")


def test_waiters_are_shown_in_order(server: Any, direct: Any, name: str) -> None:
    with crowd(server, direct, name, 3):
        done = ran("show", name, url=server.url, width=80)
        limited = ran("show", name, "--waiters", "1", "--json", url=server.url)

    tickets = [line.split()[1] for line in done.lines[-3:]]
    assert tickets == ["1", "2", "3"]
    assert json.loads(limited.out)["waiting"] == 3
    assert len(json.loads(limited.out)["waiters"]) == 1


def test_reader_that_closes_early_causes_no_traceback(server: Any, direct: Any, name: str) -> None:
    with direct.pipeline() as pipeline:
        for number in range(3000):
            pipeline.set(f"sys:lock:{name}:{number}", "external", px=60_000)
        pipeline.execute()
    with Program("ls", f"{name}:*", url=server.url) as program:
        program.until("\n")
        program.close_output()
        errors = program.errors()

    assert errors == ""


def test_free_lock_is_shown_with_exit_code_1(server: Any, name: str) -> None:
    done = ran("show", name, url=server.url)

    assert done.code == 1
    assert "holder\tfree" in done.out


def test_holder_with_owner_info_is_named(server: Any, direct: Any, name: str) -> None:
    fields = {"host": "web\x1b-1", "pid": 7, "thread": None, "function": "app.run"}
    with RedisLock(name, client=direct, owner_info=lambda: fields):
        piped = ran("ls", f"{name}*", url=server.url)
        narrow = ran("ls", f"{name}*", url=server.url, width=80)
        wide = ran("ls", f"{name}*", url=server.url, width=160)
        shown = ran("show", name, url=server.url)
        found = json.loads(ran("show", name, "--json", url=server.url).out)

    about = r"web\\x1b-1:7, function app.run, for [0-9.]+ s"
    titles, row = (line.split("\t") for line in piped.out.splitlines())
    assert (titles[4:], row[4]) == (["lock", "held by"], name)
    assert re.fullmatch(about, row[5])
    assert "held by" not in narrow.out
    assert re.search(about, wide.out)
    assert re.search(rf"\nheld by\t{about}\n", shown.out)
    assert {**found["owner"], "since": 0} == {
        "host": "web\x1b-1",
        "pid": 7,
        "function": "app.run",
        "since": 0,
    }
