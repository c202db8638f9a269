"""Time during which the machine is suspended counts for leases, as it does in Redis."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SUSPENDED = 1000
#: The command that starts a process whose machine seems to have been suspended for that long.
UNSHARE = ("unshare", "--time", "--boottime", str(SUSPENDED), "--fork")

PROGRAM = """
import sys, time
import redis
from redis_lock_decorators import RedisLock
from redis_lock_decorators._io.clock import monotonic, suspended

before = time.monotonic()
with RedisLock("suspended", client=redis.Redis(port=int(sys.argv[1])), expire=10) as lease:
    print(monotonic() - before, suspended(), lease.deadline - before, lease.remaining())
"""


def can_pretend() -> bool:
    if shutil.which("unshare") is None:
        return False
    try:
        ended = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return ended.returncode == 0


@pytest.mark.skipif(not can_pretend(), reason="needs time namespaces of Linux, as root")
def test_deadlines_count_suspensions_and_are_times_of_the_monotonic_clock(server):
    command = [*UNSHARE, sys.executable, "-c", PROGRAM, str(server.port)]

    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    ahead, suspended, until_deadline, remaining = map(float, found.split())
    assert SUSPENDED <= ahead < SUSPENDED + 5
    assert suspended == pytest.approx(SUSPENDED, abs=0.01)
    assert 9 < until_deadline < 15
    assert 0 < remaining < 10
