"""Pauses: with jitter, and growing while a server fails."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.delays import LONGEST_REPEAT_PAUSE, recovering, waiting


def first(count: int, pauses: object) -> list[float]:
    return list(itertools.islice(pauses, count))  # type: ignore[call-overload]


@pytest.mark.parametrize(("number", "pause"), [(0.0, 0.05), (0.5, 0.1), (1.0, 0.15)])
def test_waiting_pauses_lie_round_delta(number: float, pause: float) -> None:
    pauses = first(3, waiting(0.1, lambda: number))

    assert pauses == pytest.approx([pause] * 3)


def test_waiting_pauses_are_delta_on_average() -> None:
    pauses = first(10_000, waiting(0.1, random.Random(1).random))

    assert sum(pauses) / len(pauses) == pytest.approx(0.1, rel=0.01)


@given(delta=st.floats(min_value=0, exclude_min=True, max_value=3600))
def test_pauses_are_never_negative_nor_longer_by_more_than_half(delta: float) -> None:
    pauses = first(20, waiting(delta, random.Random(2).random))

    assert all(0 <= pause <= 1.5 * delta for pause in pauses)


def test_recovering_begins_without_a_pause_and_doubles() -> None:
    pauses = first(9, recovering(lambda: 0.5))

    assert pauses == pytest.approx([0, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.64, 0.64])


def test_recovering_pauses_are_spread() -> None:
    lowest, highest = first(8, recovering(lambda: 0.0)), first(8, recovering(lambda: 1.0))

    assert highest[0] == lowest[0] == 0
    assert highest[1:] == pytest.approx([3 * pause for pause in lowest[1:]])
    assert max(highest) <= 1.5 * LONGEST_REPEAT_PAUSE
