"""Repeated use of locks leaves nothing behind: exits that only tasks have."""

from __future__ import annotations

import pytest
from support.growth import TASK_ENDINGS, assert_nothing_is_left
from support.growth_operations import OPERATIONS
from support.leftovers import TIDY_FRONTS

FRONTS = TIDY_FRONTS[1:]
#: An event loop may be closed in the iteration in which a renewal begins to open a connection, and
#: the client's own connections are collected after it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine '_outcome' was never awaited"),
    pytest.mark.filterwarnings(
        "ignore:.*StreamWriter.__del__:pytest.PytestUnraisableExceptionWarning"
    ),
]


async def test_thousands_of_uses_leave_nothing(front, frail):
    await assert_nothing_is_left(front, frail, TASK_ENDINGS, 12)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("exit_method", TASK_ENDINGS)
async def test_ten_thousand_uses_leave_nothing(front, frail, exit_method):
    await assert_nothing_is_left(front, frail, (exit_method,), 10_000 // len(OPERATIONS))
