"""The simulation of thread switches finds errors between two lines, and reports nothing else."""

from __future__ import annotations

import itertools

import pytest
from support.switching import Lock, Scene, Scenes, Switcher

SCENES = Scenes("unit/test_switching")


class Counter:
    """A counter whose two steps should be atomic."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> None:
        value = self.value
        self.value = value + 1

    def add_under(self, lock: Lock) -> None:
        with lock:
            self.add()


def has(counter: Counter, value: int) -> None:
    assert counter.value == value


def two_steps(switcher: Switcher) -> Scene:
    counter = Counter()
    return Scene(counter.add, counter.add, lambda: has(counter, 2))


def under_a_lock(switcher: Switcher) -> Scene:
    counter, lock = Counter(), switcher.lock()
    return Scene(
        lambda: counter.add_under(lock), lambda: counter.add_under(lock), lambda: has(counter, 2)
    )


def checked_pop(switcher: Switcher) -> Scene:
    things = {1}

    def pop() -> None:
        while things:
            things.pop()

    return Scene(pop, pop)


def waiting_endlessly(switcher: Switcher) -> Scene:
    lock = switcher.lock(taken=True)
    return Scene(lock.acquire, lambda: None)


def test_steps_that_should_be_atomic_are_found_with_their_line() -> None:
    with pytest.raises(AssertionError, match=r"(?s)two_steps.*switched before add:\d+"):
        SCENES.explore(two_steps)


def test_error_between_two_lines_is_found() -> None:
    with pytest.raises(AssertionError, match="KeyError"):
        SCENES.explore(checked_pop)


def test_code_guarded_by_a_lock_is_correct() -> None:
    assert SCENES.explore(under_a_lock) > 10


def test_deadlock_is_found() -> None:
    with pytest.raises(AssertionError, match="waits endlessly"):
        SCENES.explore(waiting_endlessly)


def test_lines_without_a_call_are_atomic_with_only_at_calls() -> None:
    assert Scenes("unit/test_switching", only_at_calls=True).explore(two_steps) > 0


def test_lines_after_a_call_are_not_atomic_with_only_at_calls() -> None:
    def calling(switcher: Switcher) -> Scene:
        counter = Counter()

        def add() -> None:
            value = int(counter.value)
            counter.value = value + 1

        return Scene(add, add, lambda: has(counter, 2))

    with pytest.raises(AssertionError, match="switched before add"):
        Scenes("unit/test_switching", only_at_calls=True).explore(calling)


def test_every_order_of_the_lines_with_one_switch_is_tried() -> None:
    seen: set[str] = set()

    def letters(switcher: Switcher) -> Scene:
        order: list[str] = []

        def small() -> None:
            order.append("a")
            order.append("b")
            order.append("c")

        def large() -> None:
            order.append("A")
            order.append("B")

        return Scene(small, large, lambda: seen.add("".join(order)))

    SCENES.explore(letters)

    def is_in_order(word: tuple[str, ...]) -> bool:
        text = "".join(word)
        small, large = (
            "".join(filter(str.islower, text)),
            "".join(filter(str.isupper, text)),
        )
        return (small, large) == ("abc", "AB")

    orders = {"".join(word) for word in itertools.permutations("abcAB") if is_in_order(word)}
    assert seen >= {order for order in orders if switches(order) <= 3}
    assert seen <= orders


def switches(order: str) -> int:
    """How often the case of the letters changes."""
    return sum(one.islower() != other.islower() for one, other in itertools.pairwise(order))
