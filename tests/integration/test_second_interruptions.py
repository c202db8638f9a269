"""A lock is released though the clean-up after an exception is interrupted by another one.

An exception at the very entry of the clean-up is not helped: no line of it has run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from support.interruptions import Interrupted
from support.leftovers import BLOCKING, until
from support.second_interruptions import TwoInterruptions

from redis_lock_decorators import RedisLock

FRONTS = [BLOCKING]
#: The functions that a clean-up calls first.
CLEANING_UP = {"abandon", "_abandon", "_on_block_gone", "call", "lease", "owned"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def block(lock: RedisLock) -> None:
    with lock:
        pass


def call(lock: RedisLock) -> None:
    lock.call(int)


def interrupted_twice(work: Callable[[], None], step: int, other: int) -> Iterator[list[str]]:
    """Interrupt work at each ``step``-th function, and its clean-up at each ``other``-th.

    Yields before which functions.
    """
    for first in itertools.count(1, step):
        for second in itertools.count(1, other):
            two = TwoInterruptions(first, second)
            with suppress(Interrupted), two:
                work()
            if not two.functions:
                return
            yield two.functions
            if len(two.functions) == 1:
                break


@pytest.mark.parametrize("use", [block, call])
@pytest.mark.parametrize(
    ("step", "other"), [(3, 5), pytest.param(1, 1, marks=pytest.mark.slow)], ids=["short", "all"]
)
async def test_lock_is_released_after_two_exceptions(
    front: Any, use: Any, step: int, other: int, server: Any, direct: redis.Redis, name: str
) -> None:
    client, names = front.client(server), (f"{name}:{number}" for number in itertools.count())
    key = ""

    def work() -> None:
        nonlocal key
        lock_name = next(names)
        key = f"sys:lock:{lock_name}"
        use(RedisLock(lock_name, client=client, expire=60))

    work()
    for functions in interrupted_twice(work, step, other):
        if functions[-1] not in CLEANING_UP:
            await until(front, lambda: not direct.exists(key), partial(str, functions))

    assert int(next(names).rpartition(":")[2]) > 400
