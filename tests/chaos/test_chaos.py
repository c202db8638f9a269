"""Processes are killed, stopped and disconnected at random: locks stay exclusive and live."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from support.fronts import LEGACY

SECONDS = float(os.environ.get("CHAOS_SECONDS", "20"))
RUN = pathlib.Path(__file__).with_name("run.py")

pytestmark = [
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio"),
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system has no SIGSTOP"),
    pytest.mark.timeout(90 + 2 * SECONDS),
]


def test_mutual_exclusion_and_progress_under_faults(record_property):
    command = [sys.executable, str(RUN), "--seconds", str(SECONDS)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    for line in done.stdout.splitlines():
        if line.startswith("chaos "):
            record_property("found", line)
    assert done.returncode == 0, done.stdout + done.stderr
