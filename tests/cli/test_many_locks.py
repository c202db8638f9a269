"""``redis-lock ls`` with 100,000 locks: first rows early, short calls, little memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Program, environment

LOCKS = 100_000
#: Prints the peak memory of a command in MiB on the standard error.
MEASURE = """\
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak // (1024 if sys.platform == "linux" else 1024 ** 2), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def filled() -> Any:
    """A server with many locks, which logs each call of more than 10 ms."""
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server, server.client() as client:
        fill(client, 0, LOCKS)
        client.config_set("slowlog-log-slower-than", 10_000)
        client.slowlog_reset()
        yield server


def fill(client: Any, first: int, count: int) -> None:
    for start in range(first, first + count, 10_000):
        with client.pipeline(transaction=False) as pipeline:
            for number in range(start, min(start + 10_000, first + count)):
                pipeline.set(f"sys:lock:order:{number}", f"holder-{number}", px=600_000)
            pipeline.execute()


def peak_of(url: str, *arguments: str) -> int:
    """The most memory in MiB that the program used."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *PROGRAM, *arguments],
        env=environment(url),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1])


def test_first_rows_come_before_the_last_ones_are_read(filled: Any) -> None:
    with filled.client() as client, Program("ls", url=filled.url) as program:
        program.until("order:")
        # Nobody reads the rest, so the program waits for the pipe: it must not have scanned all.
        scans = client.info("commandstats")["cmdstat_scan"]["calls"]

        assert scans < LOCKS / 1_000 / 2


@pytest.mark.slow
def test_all_locks_are_listed_in_short_calls_and_little_memory(filled: Any) -> None:
    few = peak_of(filled.url, "ls", "no such lock")
    many = peak_of(filled.url, "ls")
    watched = peak_of_watch(filled.url)

    with filled.client() as client:
        slow = [entry["command"] for entry in client.slowlog_get(1000)]
        stats = client.info("commandstats")
    assert max(many, watched) - few < 30, (few, many, watched)
    # A busy machine stops the server now and then, in whatever call: a slow kind of call is slow
    # each time.
    assert len(slow) < stats["cmdstat_scan"]["calls"] / 20, slow
    assert stats["cmdstat_scan"]["usec_per_call"] < 2_000
    assert "cmdstat_keys" not in stats
    done = subprocess.run(
        [*PROGRAM, "ls", "--json"],
        env=environment(filled.url),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert len(set(done.stdout.splitlines())) >= LOCKS


def peak_of_watch(url: str) -> int:
    """The same of a live view of all locks, after some views; 0 without /proc."""
    if sys.platform != "linux":
        return 0
    with Program("ls", "--watch", "--interval", "0.1", url=url) as program:
        for _ in range(200):
            program.until("\n")
        with open(f"/proc/{program.process.pid}/status") as file:
            peak = next(line for line in file if line.startswith("VmHWM"))
    return int(peak.split()[1]) // 1024
