"""Repeated use of locks leaves no memory, threads, connections or keys behind."""

from __future__ import annotations

import pytest
from support.growth import ENDINGS, OPERATIONS, assert_nothing_is_left
from support.leftovers import TIDY_FRONTS

import redis_lock_decorators
import redis_lock_decorators.asyncio

FRONTS = TIDY_FRONTS
#: Public names that use no lock.
OTHERS = {name for name in redis_lock_decorators.__all__ if name.endswith("Error")} | {
    "__version__"
}


def test_every_public_name_is_among_the_operations() -> None:
    public = {*redis_lock_decorators.__all__, *redis_lock_decorators.asyncio.__all__} - OTHERS

    assert {name for one in OPERATIONS.values() for name in one.names} == {*public, "Lock"}


async def test_thousands_of_uses_leave_nothing(front, frail):
    await assert_nothing_is_left(front, frail, ENDINGS, 6)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("exit_method", ENDINGS)
async def test_ten_thousand_uses_leave_nothing(front, frail, exit_method):
    await assert_nothing_is_left(front, frail, (exit_method,), 10_000 // len(OPERATIONS))
