"""``--watch``: the live view of locks."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from support.cli import Program, crowd

from redis_lock_decorators import RedisLock
from redis_lock_decorators.cli.rates import SAMPLED, Rates, Sample
from redis_lock_decorators.inspection import LockStatus

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


def sample(seconds: float, *, holder: Any = "a", head: Any = None, times: Any = ()) -> Sample:
    status = LockStatus("x", "k:x", holder, False, 10.0, None, 2, head)
    return Sample(status, seconds, times)


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        ({}, {}, 0),
        ({}, {"holder": "b"}, 0.5),
        ({}, {"holder": None}, 0),
        ({"head": 3}, {"head": 23}, 10),
        ({"head": 23}, {"head": 3}, 0),
        ({"head": 3}, {"head": None, "holder": "b"}, 0.5),
        ({"times": [1.0]}, {"times": [1.0, 2.0, 2.5, 3.0]}, 1.5),
        ({"times": [1.0]}, {"times": []}, 0),
        ({"times": []}, {"times": [1.0, 2.0]}, 1),
        # Each of the sampled hand-overs is new, so there may have been more: their pace counts.
        ({"times": [1.0]}, {"times": [7 + n / 1000 for n in range(SAMPLED)]}, 1000),
    ],
)
def test_rate_is_the_greatest_of_what_is_known(before: Any, now: Any, rate: float) -> None:
    rates = Rates()

    assert rates.add([sample(100, **before)])[0][1] is None
    assert rates.add([sample(102, **now)])[0][1] == pytest.approx(rate)
    assert rates.add([]) == []
    assert rates.add([sample(104)])[0][1] is None


def test_pipe_gets_a_line_at_each_interval(server: Any, direct: Any, name: str) -> None:
    with (
        RedisLock(name, client=direct) as lease,
        Program("show", name, "--watch", "--interval", "0.1", url=server.url) as program,
    ):
        heading = program.until("\n").rstrip().split("\t")
        lines = [program.until("\n").rstrip("\n").split("\t") for _ in range(3)]
        program.process.send_signal(signal.SIGINT)
        done = program.done()

    assert heading[:3] == ["time", "lock", "holder"]
    assert [line[1:3] for line in lines] == [[name, f"{lease.identifier[:8]}…"]] * 3
    assert [line[-1] for line in lines] == ["", "0", "0"]
    assert (done.code, done.err) == (130, "")


def test_hand_overs_are_counted(server: Any, direct: Any, name: str) -> None:
    command = ["show", name, "--watch", "--json", "--interval", "0.2"]
    with Program(*command, url=server.url) as program:
        with crowd(server, direct, name, 4, turns=50):
            first = json.loads(program.until("\n"))
            while '"waiting": 4' not in program.until("\n"):
                pass
        found = [json.loads(program.until("\n")) for _ in range(3)]

    assert first["hand_overs_per_second"] is None
    assert max(one["hand_overs_per_second"] for one in found) > 0


@pytest.mark.parametrize(("verb", "width"), [("ls", 80), ("show", 200)])
def test_ctrl_c_leaves_the_terminal_as_it_was(
    server: Any, direct: Any, name: str, verb: str, width: int
) -> None:
    with (
        crowd(server, direct, name, 2),
        Program(verb, name, "--watch", "--interval", "0.1", url=server.url, width=width) as program,
    ):
        seen = program.until("hand-overs/s") + program.until("hand-overs/s")
        program.write("\x03")
        done = program.done()

    assert (done.code, done.err) == (130, "")
    assert (seen + done.out).rfind(SHOW_CURSOR) > (seen + done.out).rfind(HIDE_CURSOR)
    assert max(len(line.replace("^C", "")) for line in done.lines) <= width


def test_sigterm_ends_the_view(server: Any) -> None:
    with Program("ls", "--watch", url=server.url, width=80) as program:
        program.until("hand-overs/s")
        program.process.terminate()
        done = program.done()

    assert (done.code, done.err) == (143, "")


def test_server_that_dies_ends_the_view(frail: Any) -> None:
    with Program("show", "x", "--watch", "--interval", "0.1", url=frail.url, width=80) as program:
        program.until("hand-overs/s")
        frail.kill()
        done = program.done()

    assert done.code == 69
    assert done.err.startswith("redis-lock: the server: ")
    assert len(done.err.splitlines()) == 1
