"""Waiting in a queue, in virtual time: order, grants, timeouts and interruptions."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.faults import Request, delivered, raising, reply_lost, slow, unsent
from support.queue_world import EXTERNAL, KEY, KEYS, World, waiting
from support.simulated_queue import QueuePort

from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._rules import messages


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("method", ["script", "native", "transaction"])
def test_unanswered_release_that_handed_off_the_lock_is_no_loss(world: World, method: Any) -> None:
    holder = world.holder()
    (first,) = waiting(world)
    holder.process.port.faults = [reply_lost]

    holder.release()
    world.advance(0.1)

    assert first.is_live
    assert not holder.claim.is_lost(world.clock.now)
    assert holder.process.lease_loop.failures == []
    first.process.lease_loop.start(release(QueuePort(first.process), first.claim, method))  # type: ignore[arg-type]
    world.advance(0.1)
    assert world.is_empty()


def test_waiter_whose_request_was_never_sent_has_no_entry_to_remove(world: World) -> None:
    world.holder()
    (first,) = waiting(world)
    process = first.process
    late = process.acquire(wait=1)  # joins the queue without a try, as another one is before it
    process.port.log.clear()
    process.port.usual = unsent

    world.advance(3)

    assert late.refusal is not None
    assert not late.claim.has_asked
    assert "cancel" not in process.port.verbs


def test_waiters_enter_in_order_of_arrival(world: World) -> None:
    holder = world.holder()
    first, second, third = waiting(world, 3)
    order = []

    for attempt in (first, second, third):
        holder.release()
        world.advance(0.01)
        order.append([one.held for one in (first, second, third)])
        holder = attempt

    assert order == [[True, False, False], [True, True, False], [True, True, True]]


def test_waiter_enters_without_another_request(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.release()
    world.advance(0.01)

    assert waiter.held
    assert waiter.process.port.verbs == []


def test_waiter_in_a_cluster_enters_without_another_request() -> None:
    world = World(cluster=True)
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.release()
    world.advance(0.02)

    assert waiter.held
    assert waiter.process.port.verbs == []


def test_timeout_leaves_no_keys(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world, wait=0.5)

    world.advance(1)
    left = world.server.members(KEYS[1])
    holder.release()
    world.advance(0.1)

    assert not waiter.held
    assert waiter.at == pytest.approx(0.51, abs=0.02)
    assert left == {}
    assert world.is_empty()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ResponseError("no")])
def test_interrupted_waiter_leaves_no_keys(world: World, error: BaseException) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)

    waiter.process.waiters[-1].interrupt(error)
    world.advance(0.05)
    left = world.server.members(KEYS[1])
    holder.release()
    world.advance(0.1)

    assert waiter.error is error
    assert left == {}
    assert world.is_empty()


def test_waiter_interrupted_after_its_grant_hands_off_the_lock(world: World) -> None:
    holder = world.holder()
    first, second = waiting(world, 2)
    first.process.subscriptions[-1].late = 0.1

    holder.release()
    world.advance(0.05)
    first.process.waiters[-1].interrupt(KeyboardInterrupt())
    world.advance(0.05)

    assert second.held
    assert world.holder_identifier() == second.claim.identifier


def test_lock_granted_to_an_abandoned_entry_is_handed_off(world: World) -> None:
    holder = world.holder()
    process = world.process()
    first = process.acquire(wait=60)
    world.advance(0.05)
    gone = process.acquire(wait=0.5)
    world.advance(0.02)
    copy = next(sent.command for sent in reversed(process.port.log) if sent.verb == "enqueue")
    world.advance(1)
    world.server.run(copy)
    (other,) = waiting(world)

    for attempt in (holder, first):
        attempt.release()
        world.advance(0.05)

    assert not gone.held
    assert other.held


def test_copy_of_a_subscriber_in_a_forked_child_releases_nothing(world: World) -> None:
    holder = world.holder()
    process = world.process()
    first = process.acquire(wait=60)
    world.advance(0.05)
    process.acquire(wait=0.5)
    world.advance(0.02)
    copy = next(sent.command for sent in reversed(process.port.log) if sent.verb == "enqueue")
    world.advance(1)
    world.server.run(copy)
    holder.release()
    world.advance(0.05)
    process.port.log.clear()
    process.subscriber._process = -1

    first.release()
    world.advance(0.05)

    assert not world.is_empty()
    assert [sent.verb for sent in process.port.log] == ["release"]


def test_entry_of_a_waiter_that_acquired_by_polling_delays_no_waiter(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    first = process.acquire(wait=60)
    world.advance(0.05)
    second = process.acquire(wait=60)
    world.advance(0.05)
    process.is_cut_off = True
    process.subscriptions[-1].cut()
    world.advance(0.05)
    world.server.drop(KEY)
    world.advance(1)
    process.is_cut_off = False
    world.advance(2)
    holder, other = (first, second) if first.held else (second, first)

    holder.release()
    world.advance(0.5)

    assert other.held


def test_lock_lost_while_leaving_the_queue_leaves_no_entry(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    port = waiter.process.port

    def lost(request: Request) -> Any:
        if port.verbs[-1] == "enter":
            world.server.put(KEY, EXTERNAL, 60)
        return delivered(request)

    waiter.process.is_cut_off = True
    waiter.process.subscriptions[-1].cut()
    world.advance(0.5)
    port.usual = lost
    holder.release()
    world.advance(1)

    assert port.verbs[-3:] == ["acquire", "enter", "cancel"]
    assert port.untidy == []
    assert world.server.members(KEYS[1]) == {}


@pytest.mark.parametrize("wait", [0.3, 1.0, 2.5])
def test_waiter_times_out_in_time_with_a_slow_server(world: World, wait: float) -> None:
    world.holder(expire=60)
    process = world.process()
    waiter = process.acquire(wait=wait)
    world.advance(0.1)

    process.port.usual = slow(0.2)
    world.advance(5)

    assert not waiter.held
    assert waiter.at == pytest.approx(0.01 + wait, abs=0.5)
    assert waiter.claim.identifier not in str(world.server.members(KEYS[1]))


def test_waiter_that_moves_changes_its_identifier_and_leaves_no_entry(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process, before = waiter.process, waiter.claim.identifier
    old = process.subscriber
    assert old is not None

    process.subscriber = None  # as when a slot has moved
    process.waiters[-1].notify(Signal.RETRY)
    world.advance(0.1)
    entries = world.server.members(KEYS[1])
    world.server.publish(old.channel, f"turn|{messages.hint(before).decode()}|")
    world.advance(0.1)
    holder.release()
    world.advance(0.1)

    assert waiter.claim.identifier != before
    assert list(entries) != []
    assert before not in str(entries)
    assert len(entries) == 1
    assert waiter.is_live


def test_lock_granted_to_a_former_entry_is_handed_off(world: World) -> None:
    holder = world.holder(expire=60)
    first, second = waiting(world, 2, wait=60)
    port = first.process.port
    first.process.subscriptions[-1].late = 30
    holder.release()
    world.advance(0.01)
    refused = raising(ResponseError("no"))

    port.usual = lambda request: (
        refused(request) if port.verbs[-1] == "enqueue" else delivered(request)
    )
    first.process.waiters[-1].notify(Signal.RETRY)
    world.advance(0.1)

    assert isinstance(first.error, ResponseError)
    assert second.held
