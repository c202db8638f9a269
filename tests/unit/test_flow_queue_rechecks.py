"""Rechecks of awaited locks, and what is dropped when waiters leave."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.queue_world import EXTERNAL, KEY, KEYS, World, waiting
from support.simulated_queue import QueuePort
from support.simulation import new_claim

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.queue import entries
from redis_lock_decorators._flow.queue.entry_records import EnteredClaim
from redis_lock_decorators._flow.queue.recheck import MOST_AT_ONCE, Rechecks
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import LeaseBase, claim_for


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("expire", [20, 60])
def test_waiter_without_renewal_rechecks_as_often_as_others(world: World, expire: float) -> None:
    world.holder(expire=expire)
    (waiter,) = waiting(world, wait=100, expire=expire, grant=expire, renews=False)

    world.server.drop(KEY)
    world.advance(2.6)

    assert waiter.held


@pytest.mark.parametrize("pause", [0.1, 0.03, 0.007])
def test_new_waiters_do_not_delay_a_recheck(world: World, pause: float) -> None:
    world.holder(expire=60)
    process = world.process()
    first = process.acquire(wait=60)
    world.advance(0.05)
    world.server.drop(KEYS[1])

    for _ in range(round(4 / pause)):
        process.acquire(wait=0.3)
        world.advance(pause)

    assert first.claim.identifier in str(world.server.members(KEYS[1]))


def test_lock_awaited_during_a_recheck_is_rechecked(world: World) -> None:
    world.holder(name="z", expire=500)
    process = world.process()
    process.acquire(name="z", wait=100)
    world.advance(1)
    subscriber = process.subscriber
    assert subscriber is not None
    waiting, key = subscriber._entries.waiting, b"sys:lock:other"

    def racing(rechecked: bytes) -> Any:
        """Let another thread join while the event loop collects the waiters."""
        found = waiting(rechecked)
        subscriber._entries.waiting = waiting  # type: ignore[method-assign]
        queued = QueuedWaiter(key, "0" * 32 + "~", QueuePort(process).wakeup())
        queued.queue_entry, queued.is_queued = "x", True
        subscriber.join(queued)
        subscriber.schedule_recheck(key, Refusal("f" * 32 + "~", 1.0), 2.5)
        return found

    subscriber._entries.waiting = racing  # type: ignore[method-assign]
    world.advance(5)

    rechecks = [
        sent for sent in process.port.log if sent.verb == "recheck" and sent.command[3] == key
    ]
    assert len(rechecks) >= 2


def test_recheck_of_one_lock_does_not_scan_all_waiters(world: World) -> None:
    world.holder(name="z", expire=500)
    process = world.process()
    process.acquire(name="z", wait=100)
    world.advance(1)
    subscriber = process.subscriber
    assert subscriber is not None
    process.port.log.clear()
    subscriber._entries.waiters = None  # type: ignore[assignment, method-assign]

    world.advance(5)

    assert [sent.verb for sent in process.port.log] == ["recheck"] * 2


def test_abandoned_entries_are_dropped_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "SPARE", 10)
    known, stays = entries.QueueEntries(), QueuedWaiter(b"a", "stays", None)  # type: ignore[arg-type]
    known.join(stays)
    for number in range(100):
        queued = QueuedWaiter(b"%d" % number, str(number), None)  # type: ignore[arg-type]
        known.join(queued)
        known.leave(queued)
        assert known.waiting(b"a") == [stays]

    assert len(known._by_key) + len(known._joined) <= 15


@pytest.mark.parametrize("enters", [False, True])
def test_entries_are_dropped_without_rechecks(enters: bool) -> None:
    known, stays = entries.QueueEntries(), QueuedWaiter(b"a", "stays", None)  # type: ignore[arg-type]
    known.join(stays)
    for number in range(100):
        claim = new_claim(str(number))
        queued = QueuedWaiter(claim.keys[0], claim.identifier, None)  # type: ignore[arg-type]
        known.join(queued)
        if enters:
            known.enter(EnteredClaim(claim, claim.identifier, "", math.inf))
        known.leave(queued)

    assert len(known._waiters) + len(known._by_key) + len(known._joined) <= 2
    assert known.waiting(b"a") == [stays]


@pytest.mark.parametrize("renews", [False, True])
def test_paused_waiter_costs_one_grant_with_any_lease(world: World, renews: bool) -> None:
    holder = world.holder(expire=60)
    paused, other = waiting(world, 2, wait=60, expire=60, renews=renews)
    paused.process.lease_loop.freeze(100)

    holder.release()
    world.advance(2.7)

    assert other.held


def test_waiter_without_renewal_has_its_whole_lease(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60, expire=20, renews=False)
    waiter.process.port.log.clear()

    holder.release()
    world.advance(0.02)

    assert waiter.process.port.verbs == ["enter"]
    assert waiter.claim.deadline - world.clock.now == pytest.approx(19.8, abs=0.1)
    assert world.server.left(KEY) == pytest.approx(20, abs=0.1)


def test_crashed_waiters_are_skipped_despite_pattern_subscribers(world: World) -> None:
    world.server.spies.append(lambda channel, message: None)
    holder = world.holder()
    dead, living = waiting(world, 2)
    dead.process.lease_loop.freeze(1000)
    dead.process.subscriptions[-1].cut()

    holder.release()
    world.advance(0.01)

    assert living.held


@pytest.mark.parametrize("expire", [0.03, 0.3, 2.0])
def test_expiring_leases_do_not_make_waiters_join_again(world: World, expire: float) -> None:
    process = world.process()
    attempts = []
    for _ in range(20):
        attempts.append(process.acquire(wait=100, expire=expire, renews=False))
        world.advance(0.002)
    process.port.log.clear()

    world.advance(expire * 25 + 1)

    entered = [attempt.at for attempt in attempts]
    assert all(attempt.held for attempt in attempts)
    assert entered == sorted(entered)  # type: ignore[type-var]
    assert process.port.verbs.count("enqueue") <= 2


def test_holder_whose_lease_ends_while_it_works_is_not_suspected(world: World) -> None:
    holder = world.holder(expire=60)
    process = world.process()
    first, second = process.acquire(wait=60), process.acquire(wait=60)
    world.advance(0.1)
    holder.release()
    world.advance(2)
    noted = process.port.verbs.count("enter")
    process.port.log.clear()
    world.advance(0.7)

    assert first.held
    assert second.held
    assert noted == 1
    assert "enqueue" not in process.port.verbs


def test_waiter_enters_when_min_hold_is_over(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.advance(0.5)
    holder.claim.held_until = world.clock.now + 0.4
    free_at = world.clock.now + 0.4 - 1000

    holder.release()
    world.advance(1)

    assert waiter.at == pytest.approx(free_at, abs=0.05)


def test_min_hold_counts_from_the_entry(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.advance(0.39)

    holder.release()
    world.advance(0.05)

    assert waiter.at is not None
    assert waiter.claim.entered == pytest.approx(1000 + waiter.at, abs=0.001)
    assert waiter.claim.since < waiter.claim.entered


def test_min_hold_of_a_lease_counts_from_the_entry() -> None:
    claim = new_claim("a")
    claim.since, claim.entered = 1000.0, 1000.4

    LeaseBase(claim, Options(min_hold=3))._apply_min_hold()

    assert claim.held_until == pytest.approx(1003.4)


@pytest.mark.parametrize("auto_renew", [False, True])
def test_grant_is_short_with_any_lease(auto_renew: bool) -> None:
    options = Options(expire=60, auto_renew=auto_renew)
    claim = claim_for(("a",), options, None)
    other = claim_on(KEY, 60)  # as the replacement of redis-py's lock has

    assert claim.grant_ms == other.grant_ms == 2500
    assert claim.renews is auto_renew
    assert not other.renews


def test_subscriber_without_waiters_hardly_ticks(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    process.acquire(wait=0.2)
    world.advance(0.1)
    subscriber = process.subscriber
    assert subscriber is not None
    ticks, due = [], subscriber._rechecks.due
    subscriber._rechecks.due = lambda now, keys: [ticks.append(now), *due(now, keys)][1:]  # type: ignore[method-assign,func-returns-value]

    world.advance(3)

    assert process.subscriber is None
    assert len(ticks) < 6


def test_waiter_with_a_short_lease_rechecks_as_often(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60, expire=1)

    world.server.drop(KEYS[1])
    world.advance(1.1)

    assert waiter.claim.identifier in str(world.server.members(KEYS[1]))


def test_rechecks_of_many_locks_leave_time_for_other_work(world: World) -> None:
    lease_loop: Any = world.process().lease_loop
    rechecks = Rechecks(lease_loop, world.process().port, "channel")  # type: ignore[arg-type]
    waiters: Any = [object()]
    keys = [b"%d" % number for number in range(3 * MOST_AT_ONCE)]
    for key in keys:
        rechecks.schedule(key, Refusal("a~", math.inf), 2.5)
    rechecks.absorb()
    world.advance(2.6)

    first = rechecks.due(world.clock.now, lambda key: waiters)
    while_under_way = rechecks.due(world.clock.now, lambda key: waiters), rechecks.first_due()
    world.advance(0.1)
    for key, _ in first:
        rechecks.end(key)
    immediately, resumes_at = (
        rechecks.due(world.clock.now, lambda key: waiters),
        rechecks.first_due(),
    )
    world.advance(0.1)
    second = rechecks.due(world.clock.now, lambda key: waiters)

    assert len(first) == len(second) == MOST_AT_ONCE
    assert while_under_way == ([], math.inf)
    assert immediately == []
    assert resumes_at == pytest.approx(world.clock.now)
    assert not {key for key, _ in first} & {key for key, _ in second}


def test_all_of_very_many_awaited_locks_are_rechecked(world: World) -> None:
    process = world.process()
    names = [str(number) for number in range(5 * MOST_AT_ONCE)]
    for name in names:
        world.server.run(("SET", f"sys:lock:{name}".encode(), EXTERNAL + "~", "PX", 1000))
    attempts = [process.acquire(name=name) for name in names]

    world.advance(3)

    assert all(attempt.held for attempt in attempts)
