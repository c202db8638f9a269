"""The calls of the package's own functions in one cycle of an uncontended lock.

Calls can be counted exactly on a shared machine, where time cannot be measured. A limit is the
present number of calls and a small margin: a change that needs more must justify it. What reads
replies for many tasks is called as often as replies arrive, a fraction of a call for each cycle.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis
from support.fronts import AsyncioFront
from support.leftovers import PATIENCE

if int(redis.__version__.partition(".")[0]) < 5:
    pytest.skip("older clients need more calls", allow_module_level=True)

import redis_lock_decorators
from redis_lock_decorators import RedisLock
from redis_lock_decorators.asyncio import RedisLock as TaskLock

FRONTS = [AsyncioFront()]
HOME = str(Path(redis_lock_decorators.__file__).parent)
#: The number of counted cycles of each task, and of tasks.
CYCLES = 20
TASKS = 50


class Calls:
    """Counts calls of the package's functions and resumptions of its coroutines."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME):
            self.found[f"{Path(code.co_filename).stem}.{code.co_name}"] += 1

    def each(self, cycles: int) -> float:
        return sum(self.found.values()) / cycles


def test_calls_of_a_free_lock_of_a_thread(server: Any, name: str) -> None:
    client = server.client()

    def cycle() -> None:
        with RedisLock(name, client=client, expire=60):
            pass

    # A renewed lease has set the timer of the background: no cycle has to request it.
    renewed = RedisLock(f"{name}:renewed", client=client, expire=60).acquire()
    await_timer(renewed)
    for _ in range(3):
        cycle()
    with Calls() as calls:
        for _ in range(CYCLES):
            cycle()
    renewed.release()

    assert calls.each(CYCLES) <= 113, calls.found.most_common(150)


async def test_calls_of_a_free_lock_of_one_task(front: Any, server: Any, name: str) -> None:
    client = front.client(server)
    await cycles(client, name, 3)

    with Calls() as calls:
        await cycles(client, name, CYCLES)

    assert calls.each(CYCLES) <= 157, calls.found.most_common(150)


async def test_calls_of_free_locks_of_many_tasks(front: Any, server: Any, name: str) -> None:
    client = front.client(server)
    await at_once(client, name, 3)

    with Calls() as calls:
        await at_once(client, name, CYCLES)

    assert calls.each(CYCLES * TASKS) <= 113, calls.found.most_common(150)
    assert not calls.found["client_errors.no_reply"]


def await_timer(lease: Any) -> None:
    """Wait until the background has set its timer for a lease."""
    end = time.monotonic() + PATIENCE
    while lease._port.renewer._wakes_at == math.inf:
        assert time.monotonic() < end
        time.sleep(0.001)


async def cycles(client: Any, name: str, count: int) -> None:
    for _ in range(count):
        async with TaskLock(name, client=client, expire=60):
            pass


async def at_once(client: Any, name: str, count: int) -> None:
    await asyncio.gather(*[cycles(client, f"{name}:{task}", count) for task in range(TASKS)])
