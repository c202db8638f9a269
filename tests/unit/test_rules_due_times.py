"""Due times: the first is always known, whatever was set and discarded before."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.due_times import SPARE, DueTimes

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9).map(float)))


def test_nothing_is_due_if_there_is_no_key() -> None:
    times = DueTimes()

    assert times.next() == math.inf
    assert times.first(1e9) is None


@given(CHANGES, st.integers(0, 9))
def test_first_key_is_one_with_the_earliest_time(
    changes: list[tuple[bytes, float | None]], now: int
) -> None:
    times, expected = DueTimes(), dict[bytes, float]()
    for key, when in changes:
        if when is None:
            times.discard(key)
            expected.pop(key, None)
        else:
            times.set(key, when)
            expected[key] = when

    earliest = min(expected.values(), default=math.inf)
    assert times.next() == earliest
    assert len(times) == len(expected)
    first = times.first(now)
    assert first is None if earliest > now else expected[first or b""] == earliest


def test_former_times_do_not_accumulate() -> None:
    times = DueTimes()

    for number in range(10_000):
        times.set(b"a", number)
        times.set(b"b", -number)

    assert len(times._heap) <= 2 * len(times) + SPARE
