"""A lock that a thread begins to wait for is looked at, whatever the listener does meanwhile."""

from __future__ import annotations

import pytest
from support.switching import Make, Scene, Scenes, Switcher, name_of
from unit.test_switching_subscriber import new_subscriber, new_waiter

from redis_lock_decorators._flow.requests import Refusal

SCENES = Scenes(
    "_flow/queue/subscriber",
    "_flow/queue/subscriber_connection",
    "_flow/queue/session",
    "_flow/queue/recheck",
    "_flow/queue/entries",
    "_flow/queue/entry_records",
)
HOLDER = "f" * 32 + "~"


@SCENES.add
def a_waiter_lines_up_while_it_ticks(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    turn = new_waiter("a")
    lease_loop.time += 0.5

    def line_up() -> None:
        subscriber.join(turn)
        subscriber.schedule_recheck(turn.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        lease_loop.goes_on(1010)
        looks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert looks, "it is never looked at"
        assert looks[0] <= 1003.1

    return Scene(line_up, subscriber.tick, check)


@SCENES.add
def a_waiter_lines_up_while_the_last_for_the_same_lock_leaves(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    old, turn = new_waiter("a"), new_waiter("a", "another")
    subscriber.join(old)
    subscriber.schedule_recheck(b"a", Refusal(HOLDER, 5.0), 2.5)
    lease_loop.time += 0.5

    def leave_and_tick() -> None:
        subscriber.leave(old)
        subscriber.tick()

    def line_up() -> None:
        subscriber.join(turn)
        subscriber.schedule_recheck(turn.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        lease_loop.goes_on(1010)
        assert [name for _, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]

    return Scene(line_up, leave_and_tick, check)


@SCENES.add
def a_waiter_hands_in_while_the_alarm_is_put_off(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    turn = new_waiter("a")
    subscriber.join(turn)

    def check() -> None:
        lease_loop.goes_on(1010)
        looks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert looks
        assert looks[0] <= 1000.1

    def hand_in() -> None:
        subscriber.schedule_recheck(b"a", Refusal(None), 2.5)

    return Scene(hand_in, subscriber._wake_in_time, check)


@SCENES.add
def two_waiters_of_one_lock_hand_in(switcher: Switcher) -> Scene:
    """The shortest grant is heeded whoever hands in last."""
    lease_loop, subscriber = new_subscriber()
    one, other = new_waiter("a"), new_waiter("a", "another")
    subscriber.join(one)
    subscriber.join(other)

    def check() -> None:
        lease_loop.goes_on(1010)
        looks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert looks
        assert looks[0] <= 1000.6, "not looked at within the shorter grant"

    return Scene(
        lambda: subscriber.schedule_recheck(b"a", Refusal(HOLDER, 60.0), 0.5),
        lambda: subscriber.schedule_recheck(b"a", Refusal(HOLDER, 60.0), 2.5),
        check,
    )


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_lock_that_is_waited_for_is_looked_at_whatever_the_order_of_lines(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
