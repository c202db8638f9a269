"""``redis-lock bench``: figures of a server."""

from __future__ import annotations

import json
from typing import Any

from support.cli import Program, ran

CONTENDED = ["redis-py's Lock", "RedisLock", "RedisLock, wait=cohort"]


def test_locks_are_measured_and_removed(frail: Any) -> None:
    done = ran("bench", "--json", url=frail.url)

    rows = [json.loads(line) for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert [row["lock"] for row in rows if row["threads"] > 1] == CONTENDED
    assert [row["lock"] for row in rows if row["threads"] == 1][1:] == CONTENDED[:2]
    assert all(row["per_second"] > 0 for row in rows)
    assert [row["times_redis_py"] for row in rows if row["lock"] == CONTENDED[0]] == [1, 1]
    assert frail.client().keys("*") == []


def test_progress_is_shown_and_ctrl_c_removes_the_locks(frail: Any) -> None:
    with Program("bench", url=frail.url, width=80, stderr_too=True) as program:
        program.until("measuring")
        program.write("\x03")
        done = program.done()

    assert done.code == 130
    assert frail.client().keys("*") == []
