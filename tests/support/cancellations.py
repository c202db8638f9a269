"""The pending cancellations of a task."""

from __future__ import annotations

import asyncio
import sys

import pytest

counts_cancellations = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="tasks do not count their cancellations before Python 3.11"
)


def cancellations():
    """The pending cancellations of the running task (0 before Python 3.11)."""
    task = asyncio.current_task()
    return task.cancelling() if hasattr(task, "cancelling") else 0
