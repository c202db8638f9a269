"""``redis-lock ls`` and ``show``: which locks are held, and who waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.cli import ran

from redis_lock_decorators import RedisLock


@pytest.fixture
def held(direct: Any, name: str) -> Any:
    """A held lock."""
    with RedisLock(name, client=direct, fencing=True) as lease:
        yield lease


def test_held_lock_is_listed_in_a_pipe(server: Any, name: str, held: Any) -> None:
    done = ran("ls", f"{name}*", url=server.url)

    titles, row = (line.split("\t") for line in done.out.splitlines())
    assert titles == ["lock", "holder", "time left", "waiting", "fence"]
    assert row[:2] == [name, f"{held.identifier[:8]}…"]
    assert row[3:] == ["0", str(held.fence)]
    assert (done.code, done.err) == (0, "")


def test_held_lock_is_shown_as_json(server: Any, name: str, held: Any) -> None:
    done = ran("show", name, "--json", url=server.url)

    found = json.loads(done.out)
    assert (found["identifier"], found["fence"]) == (held.identifier, held.fence)
    assert found["waiters"] == []
    assert 0 < found["remaining"] <= 10


@pytest.mark.parametrize("width", [80, 200])
def test_table_fits_the_terminal(server: Any, name: str, held: Any, width: int) -> None:
    done = ran("ls", name, url=server.url, width=width)

    assert [len(line) for line in done.lines] == [width, width]
    assert name in done.lines[1]


def test_free_lock_is_shown_with_exit_code_1(server: Any, name: str) -> None:
    done = ran("show", name, url=server.url)

    assert done.code == 1
    assert "holder\tfree" in done.out
