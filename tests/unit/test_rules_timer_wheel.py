"""The timer wheel: no item is forgotten or late, and many are due together."""

import math

from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.lease_times import grain
from redis_lock_decorators._rules.timer_wheel import TimerWheel

TIMES = st.floats(min_value=1000, max_value=2000)
GRAINS = st.sampled_from([2.0**power for power in range(-6, 4)])
PHASES = st.floats(min_value=0, max_value=1)


def test_empty_wheel_has_nothing_due_ever() -> None:
    wheel = TimerWheel[str]()

    assert wheel.next() == math.inf
    assert wheel.take(1e9, []) == []
    assert len(wheel) == 0


def test_item_is_returned_once_when_it_is_due() -> None:
    wheel = TimerWheel[str]()
    due = wheel.put("a", 10.3, 0.5)

    assert due == wheel.next() == 10.0
    assert wheel.take(9.99, []) == []
    assert wheel.take(10.0, []) == ["a"]
    assert wheel.take(11.0, []) == []
    assert (len(wheel), wheel.next()) == (0, math.inf)


def test_items_due_within_a_grain_are_due_together() -> None:
    wheel = TimerWheel[int]()
    for number in range(1000):
        wheel.put(number, 10 + number / 1001, 1.0)

    first = wheel.next()

    assert sorted(wheel.take(first, [])) == list(range(1000))


def test_coarse_and_fine_grains_meet() -> None:
    wheel = TimerWheel[str](0.3)
    wheel.put("coarse", 20.0, 4.0)
    fine = wheel.put("fine", 16.4, 0.25)

    assert fine == wheel.next()
    assert sorted(wheel.take(fine, [])) == ["coarse", "fine"]


def test_wheels_of_different_phase_act_at_different_times() -> None:
    phases = [number / 10 for number in range(10)]

    dues = {TimerWheel[str](phase).put("a", 100.0, 1.0) for phase in phases}

    assert len(dues) == len(phases)


def test_dropped_item_is_not_returned_and_causes_no_wake_up() -> None:
    wheel = TimerWheel[str]()
    due = wheel.put("a", 10.0, 0.5)
    wheel.put("b", 20.0, 0.5)

    wheel.drop("a", due)

    assert (len(wheel), wheel.next()) == (1, 20.0)
    assert wheel.take(15.0, []) == []


def test_missing_item_can_be_dropped() -> None:
    wheel = TimerWheel[str]()
    due = wheel.put("a", 10.0, 0.5)

    wheel.drop("b", due)
    wheel.drop("a", due + 1)
    wheel.drop("a", -math.inf)

    assert wheel.take(10.0, []) == ["a"]


def test_emptied_time_can_be_filled_again() -> None:
    wheel = TimerWheel[str]()
    wheel.drop("a", wheel.put("a", 10.0, 0.5))
    emptied = wheel.next()

    wheel.put("b", 10.0, 0.5)

    assert emptied == math.inf
    assert wheel.take(10.0, []) == ["b"]


@given(phase=PHASES, when=TIMES, width=GRAINS)
def test_item_is_due_at_most_a_grain_early_and_never_late(
    phase: float, when: float, width: float
) -> None:
    due = TimerWheel[str](phase).put("a", when, width)

    assert when - width <= due <= when


@given(phase=PHASES, when=TIMES, expire=st.floats(min_value=0.001, max_value=1e6))
def test_grain_of_a_lease_never_makes_it_late(phase: float, when: float, expire: float) -> None:
    due = TimerWheel[str](phase).put("a", when, grain(expire))

    assert when - expire / 24 <= due <= when


@given(
    phase=PHASES,
    things=st.lists(st.tuples(TIMES, GRAINS), max_size=30),
    dropped=st.sets(st.integers(min_value=0, max_value=29)),
    nows=st.lists(TIMES, max_size=10).map(sorted),
)
def test_every_item_is_returned_when_it_is_due(
    phase: float, things: list[tuple[float, float]], dropped: set[int], nows: list[float]
) -> None:
    wheel = TimerWheel[int](phase)
    left = {number: wheel.put(number, *thing) for number, thing in enumerate(things)}
    for number in dropped & set(left):
        wheel.drop(number, left.pop(number))

    for now in [*nows, 3000.0]:
        assert wheel.next() == min(left.values(), default=math.inf)
        assert len(wheel) == len(left)
        due = {number for number, when in left.items() if when <= now}
        assert sorted(wheel.take(now, [])) == sorted(due)
        left = {number: when for number, when in left.items() if number not in due}

    assert (len(wheel), wheel.next()) == (0, math.inf)
