"""Messages to waiters: forged, late and repeated ones; subscribers and their connections."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import NoPermissionError
from support.faults import Request, delivered, raising
from support.queue_world import KEY, KEYS, World, hint, publish, waiting
from support.simulated_queue import QueuePort

from redis_lock_decorators._flow.queue.recheck import Awaited
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._rules import messages


@pytest.fixture
def world() -> World:
    return World()


def test_message_of_another_server_is_not_trusted(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    entry = waiter.claim.queue_entry
    other = messages.proof(b"f" * 40, waiter.claim.identifier, KEY).decode()

    publish(
        world, waiter, f"turn|{hint(waiter)}|{other}"
    )  # as it arrives from a replica or the cluster bus
    world.advance(1)

    assert not waiter.held
    assert list(world.server.members(KEYS[1])) == [entry]


def test_deadline_after_entry_is_within_the_grant(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    world.advance(3)

    holder.release()
    world.advance(0.01)

    assert waiter.is_live
    assert waiter.claim.deadline <= world.clock.now + world.server.left(KEY)


def test_message_read_after_a_long_pause_is_not_trusted(world: World) -> None:
    holder = world.holder()
    paused, other = waiting(world, 2)
    world.advance(2)

    paused.process.lease_loop.freeze(4)
    holder.release()
    world.advance(3.9)
    held = [paused.held, other.held]
    world.advance(0.3)

    assert held == [False, True]
    assert not (paused.is_live and other.is_live)


def test_message_that_arrives_after_joining_again_is_not_trusted(world: World) -> None:
    holder = world.holder()
    process = world.process()
    late = process.acquire(expire=0.5, wait=60)
    world.advance(0.05)
    (other,) = waiting(world, expire=5)
    process.subscriptions[-1].late = 0.8
    process.subscriber._rechecks._set(KEY, Awaited(world.clock.now + 0.6, 0))

    holder.release()
    both = []
    for _ in range(400):
        world.advance(0.01)
        both.append(late.is_live and other.is_live)

    assert not any(both)


def test_late_message_does_not_release_a_held_lock(world: World) -> None:
    holder = world.holder()
    late, other = waiting(world, 2)
    late.process.subscriptions[-1].late = 0.5
    holder.release()
    world.advance(0.01)
    late.process.waiters[-1].notify(Signal.RETRY)  # as a recheck does that finds the entry missing
    world.advance(0.05)
    entered = late.held

    world.advance(2)

    assert entered
    assert late.is_live
    assert not other.held
    assert world.holder_identifier() == late.claim.identifier


def test_unreachable_process_polls(world: World) -> None:
    holder = world.holder()
    process = world.process()
    process.port.faults = [None, raising(NoPermissionError("no PUBLISH"))]
    waiter = process.acquire()
    world.advance(1)

    holder.release()
    world.advance(0.5)

    assert waiter.held
    assert set(process.port.verbs) == {"acquire", "PUBLISH"}


def test_waiter_keeps_its_position_when_its_connection_breaks(world: World) -> None:
    holder = world.holder()
    first, second = waiting(world, 2)
    before = world.server.members(KEYS[1])

    first.process.subscriptions[-1].cut()
    world.advance(0.2)
    after = world.server.members(KEYS[1])
    holder.release()
    world.advance(0.05)

    assert sorted(after.values()) == sorted(before.values())
    assert len(set(before) & set(after)) == 1
    assert len(first.process.subscriptions) == 2
    assert [first.held, second.held] == [True, False]


def test_waiter_polls_while_it_cannot_reconnect(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)

    waiter.process.is_cut_off = True
    waiter.process.subscriptions[-1].cut()
    world.advance(0.5)
    holder.release()
    world.advance(1)

    assert waiter.held


def test_connection_that_breaks_while_checked_is_reopened(world: World) -> None:
    holder = world.holder()
    process = world.process()

    def cut(request: Request) -> Any:
        process.subscriptions[-1].cut()
        return delivered(request)

    process.port.faults = [None, cut]
    waiter = process.acquire()
    world.advance(1)
    process.port.log.clear()

    holder.release()
    world.advance(0.01)

    assert waiter.held
    assert process.port.verbs == []


def test_half_open_connection_is_closed(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world)

    waiter.process.subscriptions[-1].is_silent = True
    world.advance(4)

    assert len(waiter.process.subscriptions) == 2


@pytest.mark.parametrize("forged", ["turn|{hint}|", "turn|{hint}|" + 40 * "0", "again|{hint}"])
def test_forged_message_does_not_grant_the_lock(world: World, forged: str) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)

    for _ in range(50):
        publish(world, waiter, forged.format(hint=hint(waiter)))
        world.advance(0.001)
    requests = len(waiter.process.port.verbs)
    world.advance(0.1)
    early = waiter.held
    holder.release()
    world.advance(0.02)

    assert not early
    assert requests < 60
    assert waiter.is_live


def test_message_is_of_no_use_a_second_time_or_elsewhere(world: World) -> None:
    published: list[tuple[str, str]] = []
    world.server.spies.append(lambda channel, message: published.append((channel, message)))
    holder = world.holder(expire=60)
    first, second = waiting(world, 2, wait=60)
    holder.release()
    world.advance(0.05)
    grants = [message for _, message in published if message.startswith("turn")]

    for attempt in (first, second):
        for message in grants:
            publish(world, attempt, message)
    world.advance(1)

    assert first.is_live
    assert not second.held
    assert world.holder_identifier() == first.claim.identifier
    assert first.claim.identifier not in str(published)
    assert KEY.decode() not in str(published)


@pytest.mark.parametrize("message", ["turn|active|session", "turn|active|", "again|active|session"])
def test_message_for_an_unknown_entry_does_nothing(world: World, message: str) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.server.put(b"session", "active")
    waiter.process.port.log.clear()

    publish(world, waiter, message)
    world.advance(0.2)

    assert world.server.value(b"session") == "active"
    assert waiter.process.port.verbs == []


@pytest.mark.parametrize("data", [b"turn|\xff|y", b"", b"|||", b"turn", b"again|\xff", b"a|b|c|d"])
def test_malformed_message_is_ignored(world: World, data: bytes) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process

    publish(world, waiter, data)  # type: ignore[arg-type]
    world.advance(0.5)
    process.port.log.clear()
    holder.release()
    world.advance(0.01)

    assert waiter.held
    assert len(process.subscriptions) == 1
    assert process.port.verbs == []


def test_every_grant_is_verified_where_info_is_forbidden(world: World) -> None:
    world.server.run_id = None
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.release()
    world.advance(0.02)

    assert waiter.is_live
    assert waiter.process.port.verbs == ["enter"]


def test_unreachable_waiter_polls_with_a_new_identifier(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process
    former = waiter.claim.identifier
    assert process.subscriber is not None

    process.subscriber._on_failure(NoPermissionError("no"))
    world.advance(0.1)
    copy = next(sent.command for sent in process.port.log if sent.verb == "cancel")
    world.server.drop(KEY)
    world.advance(1)
    held = world.holder_identifier()
    world.server.run(copy)

    assert waiter.is_live
    assert waiter.claim.identifier != former
    assert world.holder_identifier() == held == waiter.claim.identifier


def test_late_message_for_an_abandoned_entry_changes_no_claim(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process, before = waiter.process, waiter.claim.identifier
    copy = next(sent.command for sent in process.port.log if sent.verb == "enqueue")
    process.waiters[-1].notify(Signal.RETRY)
    world.advance(0.1)
    world.server.run(copy)  # the abandoned identifier is in the queue again

    holder.release()
    world.advance(0.2)
    entered = waiter.is_live
    world.advance(2)

    assert entered
    assert world.holder_identifier() == waiter.claim.identifier != before


def test_subscriber_counted_only_by_a_pattern_is_unavailable(world: World) -> None:
    world.server.spies.append(lambda channel, message: None)
    holder = world.holder()
    process = world.process()
    process.port.usual = lambda request: (
        [b"", 0] if process.port.verbs[-1] == "PUBSUB" else delivered(request)
    )
    waiter = process.acquire()
    world.advance(1)

    holder.release()
    world.advance(0.5)

    assert waiter.held
    assert set(process.port.verbs) == {"acquire", "PUBLISH", "PUBSUB"}


def test_waiter_that_joins_an_ended_subscriber_moves_to_another(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    process.acquire(wait=0.2)
    world.advance(0.1)
    ended = process.subscriber
    assert ended is not None
    world.advance(3)
    assert process.subscriber is None

    queued = QueuedWaiter(KEY, "0" * 32 + "~", QueuePort(process).wakeup())
    ended.join(queued)
    world.advance(1)

    assert world.server.subscribers[ended.channel] == []
    assert list(process.waiters[-1]._signals)[:1] == [Signal.RETRY]


def test_end_of_a_subscriber_keeps_its_replacement(world: World) -> None:
    lease_loop: Any = world.process().lease_loop
    client_state: ClientState[Any] = ClientState(object_with_execute(), None, lease_loop)
    port: Any = world.process().port
    port.client = object_with_execute()
    first = client_state.subscriber(port, KEY)
    first._end(first)
    second = client_state.subscriber(port, KEY)

    first._end(first)

    assert client_state.subscriber(port, KEY) is second


def object_with_execute() -> Any:
    class Client:
        def execute_command(self) -> None: ...

    return Client()


def test_subscriber_at_a_former_master_reconnects(
    world: World,
) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process
    world.server.subscribers.clear()  # it is subscribed at another server, such as a former master

    world.advance(6)
    lines = len(process.subscriptions)
    holder.release()
    world.advance(0.05)

    assert lines > 1
    assert waiter.held


@pytest.mark.parametrize("verbs", [("enqueue",), ("enqueue", "cancel")])
def test_client_without_queue_permissions_polls(world: World, verbs: tuple[str, ...]) -> None:
    holder = world.holder(expire=60)
    process = world.process()
    refused = raising(NoPermissionError("no"))
    process.port.usual = lambda request: (
        refused(request) if process.port.verbs[-1] in verbs else delivered(request)
    )
    waiter = process.acquire(wait=60)
    world.advance(3)
    assert waiter.error is None

    holder.release()
    world.advance(3)

    assert waiter.is_live
