"""The checks detect the overlap of redis-py's lock, which does not know when its lease ends."""

from __future__ import annotations

import signal
import time

import pytest
from support.connecting import to_server
from support.history import attempts
from support.plans import LONG
from support.replication import until
from support.scene import LEASE, Scene

from redis_lock_decorators.testing import LocalServer


def is_inside(folder, process):
    """Whether a process is inside a block now."""
    return any(
        "granted" in one and "releasing" not in one
        for one in attempts(folder)
        if one["process"] == process
    )


def test_redis_py_lock_overlaps_after_a_stopped_holder(tmp_path, record_property):
    kinds, locks = ("redis-py", "redis-py"), {"x": ("poll",)}
    plan = {"kinds": kinds, "locks": locks, "long": 1.0, "threads": 2, "patiences": (LONG,)}
    with LocalServer() as server, Scene(tmp_path, to_server(server.port), **plan) as scene:
        stopped = "redis-py.0.0"
        with scene.fault():
            until(lambda: is_inside(tmp_path, stopped))
            scene.lockers.processes[stopped].send_signal(signal.SIGSTOP)
            time.sleep(1.5 * LEASE)
            scene.lockers.processes[stopped].send_signal(signal.SIGCONT)

        with pytest.raises(AssertionError, match="two held the lock"):
            scene.finish([server], record_property)
