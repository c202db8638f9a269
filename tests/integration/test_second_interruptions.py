"""A lock is released though the clean-up after an exception is interrupted by another one.

An exception at the very entry of the clean-up is not helped: no line of it has run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from support.interruptions import Interrupted
from support.leftovers import BLOCKING, until
from support.second_interruptions import TwoInterruptions

FRONTS = [BLOCKING]
#: The functions that a clean-up calls first.
CLEANING_UP = {"abandon", "_abandon", "_on_block_gone", "call", "lease", "owned"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def block(lock: Any) -> None:
    with lock:
        pass


def call(lock: Any) -> None:
    lock.call(int)


def interrupted_twice(step: int, other: int) -> Iterator[TwoInterruptions]:
    """Exceptions at each ``step``-th function, and at each ``other``-th of the clean-up."""
    for first in itertools.count(1, step):
        for second in itertools.count(1, other):
            two = TwoInterruptions(first, second)
            yield two
            if not two.functions:
                return
            if len(two.functions) == 1:
                break


@pytest.mark.parametrize("use", [block, call])
@pytest.mark.parametrize(
    ("step", "other"), [(3, 7), pytest.param(1, 1, marks=pytest.mark.slow)], ids=["short", "all"]
)
async def test_lock_is_released_after_two_exceptions(
    front: Any, use: Any, step: int, other: int, server: Any, direct: redis.Redis, name: str
) -> None:
    client, number = front.client(server), 0
    use(front.package.RedisLock(name, client=client))

    for number, two in enumerate(interrupted_twice(step, other)):
        lock = front.package.RedisLock(f"{name}:{number}", client=client, expire=60)
        with suppress(Interrupted), two:
            use(lock)
        if two.functions and two.functions[-1] not in CLEANING_UP:
            key = f"sys:lock:{name}:{number}"
            await until(front, partial(is_free, direct, key), partial(str, two.functions))

    assert number > 250


def is_free(direct: redis.Redis, key: str) -> bool:
    return not direct.exists(key)
