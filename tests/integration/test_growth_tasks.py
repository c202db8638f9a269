"""The same for the ways out that only tasks have."""

from __future__ import annotations

import pytest
from support.growth import OPERATIONS, TASK_WAYS, assert_nothing_is_left
from support.leftovers import TIDY_FRONTS

FRONTS = TIDY_FRONTS[1:]


async def test_nothing_is_left_of_some_thousand_uses(front, frail):
    await assert_nothing_is_left(front, frail, TASK_WAYS, 12)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", TASK_WAYS)
async def test_nothing_is_left_of_ten_thousand_uses(front, frail, way):
    await assert_nothing_is_left(front, frail, (way,), 10_000 // len(OPERATIONS))
