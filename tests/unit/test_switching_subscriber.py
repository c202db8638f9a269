"""Waiters that join and leave from threads are served, with thread switches at any line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError
from support.fake_subscribers import FakeLoop, new_subscriber, new_waiter
from support.simulation import new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._rules import messages

SCENES = Scenes(
    "_flow/queue/subscriber",
    "_flow/queue/subscriber_connection",
    "_flow/queue/session",
    "_flow/queue/recheck",
    "_flow/queue/entries",
    "_flow/queue/entry_records",
)


@SCENES.add
def waiter_joins_while_it_opens(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber(is_open=False)
    waiter, knows = new_waiter("a"), []

    def join() -> None:
        subscriber.join(waiter)
        knows.append(subscriber.admits(waiter))  # as a waiter does before it waits for a signal

    def opens() -> None:
        """Open the subscription, as ``_begin`` does once messages can arrive."""
        subscriber._is_alive = True
        subscriber._admission.begin(subscriber._entries.waiters)
        subscriber.is_open = True
        subscriber._admission.step()

    def check() -> None:
        lease_loop.run_until(1000)
        assert knows == [True] or waiter.wakeup.signal  # type: ignore[attr-defined]

    return Scene(join, opens, check)


@SCENES.add
def first_waiter_joins_while_nothing_is_open(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber(is_open=False)
    one, other = new_waiter("a"), new_waiter("b")

    def check() -> None:
        lease_loop.run_until(1000)
        assert [name for _, name, _ in lease_loop.started] == ["_run"]

    return Scene(lambda: subscriber.join(one), lambda: subscriber.join(other), check)


@SCENES.add
def waiter_leaves_while_another_joins(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber(is_open=False)
    old, new = new_waiter("a"), new_waiter("b")
    subscriber.join(old)

    def check() -> None:
        lease_loop.run_until(1000)
        assert [name for _, name, _ in lease_loop.started] == ["_run"]

    return Scene(lambda: subscriber.leave(old), lambda: subscriber.join(new), check)


@SCENES.add
def only_waiter_leaves_before_it_opens(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber(is_open=False)
    ended: list[Subscriber] = []
    subscriber._end = ended.append
    waiter = new_waiter("a")

    def check() -> None:
        lease_loop.run_until(1000)
        begun = [name for _, name, _ in lease_loop.started] == ["_run"]
        assert begun or (ended == [subscriber] and subscriber not in lease_loop.wanted)

    def join_and_leave() -> None:
        subscriber.join(waiter)
        subscriber.leave(waiter)

    return Scene(join_and_leave, lambda: lease_loop.run_until(1000), check)


@SCENES.add
def waiter_leaves_while_it_ticks(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    waiter = new_waiter("a")
    subscriber.join(waiter)
    lease_loop.time += 0.5
    return Scene(
        lambda: subscriber.leave(waiter), subscriber.tick, lambda: run_until(lease_loop, subscriber)
    )


@SCENES.add
def holder_enters_while_it_ticks(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    over, claim = new_claim("a"), new_claim("b")
    over.state = ENDED
    claim.mark_held(lease_loop.time)
    subscriber.enter("over", over)
    lease_loop.time += 0.5

    def check() -> None:
        run_until(lease_loop, subscriber)
        assert list(subscriber._entries._entered) == [messages.hint("new")]
        assert list(subscriber._entries._abandoned) == [messages.hint("over")]

    return Scene(lambda: subscriber.enter("new", claim), subscriber.tick, check)


@SCENES.add
def waiter_joins_while_it_ends(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    waiter = new_waiter("a")
    subscriber.is_open, subscriber._subscription = False, None

    def check() -> None:
        lease_loop.run_until(1000)
        assert Signal.RETRY in waiter.wakeup.signal, "no next subscriber"  # type: ignore[attr-defined]
        assert subscriber not in lease_loop.wanted

    return Scene(lambda: subscriber.join(waiter), subscriber._stop, check)


@SCENES.add
def waiter_joins_while_it_becomes_unavailable(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    waiter = new_waiter("a")
    subscriber.is_open = False

    def check() -> None:
        lease_loop.run_until(1000)
        assert Signal.UNAVAILABLE in waiter.wakeup.signal  # type: ignore[attr-defined]

    return Scene(
        lambda: subscriber.join(waiter), lambda: subscriber._on_failure(ResponseError("no")), check
    )


@SCENES.add
def two_holders_enter_from_a_queue(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    claims = [new_claim("a"), new_claim("b")]
    for claim in claims:
        claim.mark_held(lease_loop.time)

    def check() -> None:
        lease_loop.run_until(1001)
        assert len([at for at, name, _ in lease_loop.started if name == "_confirm"]) == 2

    one, other = [entering(subscriber, claim) for claim in claims]
    return Scene(one, other, check)


@SCENES.add
def holder_enters_from_a_queue_while_it_ticks(switcher: Switcher) -> Scene:
    lease_loop, subscriber = new_subscriber()
    claim = new_claim("a")
    claim.mark_held(lease_loop.time)
    claim.grant_ms = 300  # its confirmation is due first

    def check() -> None:
        lease_loop.run_until(1001)
        confirmed = [at for at, name, _ in lease_loop.started if name == "_confirm"]
        assert len(confirmed) == 1
        assert confirmed[0] <= 1000.12, "the grant is confirmed too late"

    return Scene(entering(subscriber, claim), subscriber.tick, check)


def entering(subscriber: Subscriber, claim: Claim) -> Callable[[], None]:
    return lambda: subscriber.enter(claim.identifier, claim, "channel|an entry|2500")


def run_until(lease_loop: FakeLoop, subscriber: Subscriber) -> None:
    """Check that PING is still sent for the remaining waiter."""
    lease_loop.started.clear()
    lease_loop.run_until(lease_loop.time + 1)
    assert "send" in [name for _, name, _ in lease_loop.started]


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_waiters_are_served_with_thread_switches_at_any_line(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
