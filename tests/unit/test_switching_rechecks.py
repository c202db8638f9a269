"""Awaited locks are rechecked in time, with thread switches at any line of the subscriber."""

from __future__ import annotations

import pytest
from support.fake_subscribers import new_subscriber, new_waiter
from support.switching import Make, Scene, Scenes, Switcher, name_of

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
def waiter_joins_while_it_ticks(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    waiter = new_waiter("a")
    lease_loop.time += 0.5

    def join() -> None:
        subscriber.join(waiter)
        subscriber.schedule_recheck(waiter.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        lease_loop.run_until(1010)
        rechecks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert rechecks, "the lock is never rechecked"
        assert rechecks[0] <= 1003.1

    return Scene(join, subscriber.tick, check)


@SCENES.add
def waiter_joins_while_the_last_for_the_same_lock_leaves(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    old, waiter = new_waiter("a"), new_waiter("a", "another")
    subscriber.join(old)
    subscriber.schedule_recheck(b"a", Refusal(HOLDER, 5.0), 2.5)
    lease_loop.time += 0.5

    def leave_and_tick() -> None:
        subscriber.leave(old)
        subscriber.tick()

    def join() -> None:
        subscriber.join(waiter)
        subscriber.schedule_recheck(waiter.key, Refusal(HOLDER, 5.0), 2.5)

    def check() -> None:
        lease_loop.run_until(1010)
        assert [name for _, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]

    return Scene(join, leave_and_tick, check)


@SCENES.add
def waiter_schedules_while_the_timer_is_set(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    waiter = new_waiter("a")
    subscriber.join(waiter)

    def check() -> None:
        lease_loop.run_until(1010)
        rechecks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert rechecks
        assert rechecks[0] <= 1000.1

    def schedule() -> None:
        subscriber.schedule_recheck(b"a", Refusal(None), 2.5)

    return Scene(schedule, subscriber._wake_in_time, check)


@SCENES.add
def two_waiters_of_one_lock_schedule(switcher: Switcher) -> Scene:
    """The shortest grant counts, in either order."""
    lease_loop, subscriber = new_subscriber()
    one, other = new_waiter("a"), new_waiter("a", "another")
    subscriber.join(one)
    subscriber.join(other)

    def check() -> None:
        lease_loop.run_until(1010)
        rechecks = [at for at, name, key in lease_loop.started if (name, key) == ("_recheck", b"a")]
        assert rechecks
        assert rechecks[0] <= 1000.6, "not rechecked within the shorter grant"

    return Scene(
        lambda: subscriber.schedule_recheck(b"a", Refusal(HOLDER, 60.0), 0.5),
        lambda: subscriber.schedule_recheck(b"a", Refusal(HOLDER, 60.0), 2.5),
        check,
    )


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_awaited_lock_is_rechecked_with_thread_switches_at_any_line(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
