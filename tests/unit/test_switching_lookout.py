"""A lock that a thread begins to wait for is looked at, whatever the listener does meanwhile."""

from __future__ import annotations

import pytest
from support.switching import Make, Scene, Scenes, Switcher, name_of
from unit.test_switching_listener import new_listener, new_turn

from redis_lock_decorators.flow.requests import Refusal

SCENES = Scenes("flow/listener", "flow/lookout", "flow/places")
HOLDER = "f" * 32 + "~"


@SCENES.add
def a_waiter_lines_up_while_it_ticks(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    turn = new_turn("a")
    bell.time += 0.5

    def line_up() -> None:
        listener.join(turn)
        listener.expect(turn.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        bell.goes_on(1010)
        looks = [at for at, name, key in bell.started if (name, key) == ("_poke", b"a")]
        assert looks, "it is never looked at"
        assert looks[0] <= 1003.1

    return Scene(line_up, listener.tick, check)


@SCENES.add
def a_waiter_lines_up_while_the_last_for_the_same_lock_leaves(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    old, turn = new_turn("a"), new_turn("a", "another")
    listener.join(old)
    listener.expect(b"a", Refusal(HOLDER, 5.0), 2.5)
    bell.time += 0.5

    def leave_and_tick() -> None:
        listener.leave(old)
        listener.tick()

    def line_up() -> None:
        listener.join(turn)
        listener.expect(turn.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        bell.goes_on(1010)
        assert [name for _, name, key in bell.started if (name, key) == ("_poke", b"a")]

    return Scene(line_up, leave_and_tick, check)


@SCENES.add
def a_waiter_hands_in_while_the_alarm_is_put_off(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    turn = new_turn("a")
    listener.join(turn)

    def check() -> None:
        bell.goes_on(1010)
        looks = [at for at, name, key in bell.started if (name, key) == ("_poke", b"a")]
        assert looks
        assert looks[0] <= 1000.1

    def hand_in() -> None:
        listener.expect(b"a", Refusal(None), 2.5)

    return Scene(hand_in, listener._ring, check)


@SCENES.add
def two_waiters_of_one_lock_hand_in(switcher: Switcher) -> Scene:
    """The shortest grant is heeded whoever hands in last."""
    bell, listener = new_listener()
    one, other = new_turn("a"), new_turn("a", "another")
    listener.join(one)
    listener.join(other)

    def check() -> None:
        bell.goes_on(1010)
        looks = [at for at, name, key in bell.started if (name, key) == ("_poke", b"a")]
        assert looks
        assert looks[0] <= 1000.6, "not looked at within the shorter grant"

    return Scene(
        lambda: listener.expect(b"a", Refusal(HOLDER, 60.0), 0.5),
        lambda: listener.expect(b"a", Refusal(HOLDER, 60.0), 2.5),
        check,
    )


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_lock_that_is_waited_for_is_looked_at_whatever_the_order_of_lines(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
