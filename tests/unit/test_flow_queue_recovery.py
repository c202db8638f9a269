"""Waiters recover from crashed processes, expired grants and locks of external clients."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.queue_world import EXTERNAL, KEY, KEYS, World, waiting

from redis_lock_decorators._flow.queue import entry_requests
from redis_lock_decorators._flow.queue.claim_entry import ClaimEntry


@pytest.fixture
def world() -> World:
    return World()


def test_expired_grant_leaves_keys_for_a_minute_at_most(
    world: World,
) -> None:
    holder = world.holder()
    (first,) = waiting(world)
    holder.release()
    world.advance(0.01)
    assert first.held
    assert world.server.members(KEYS[2])

    world.advance(first.claim.expire_ms / 1000 + 60)

    assert world.is_empty()


def test_waiters_key_lives_while_the_lock_is_handed_off(world: World) -> None:
    holder = world.holder()
    waiters = waiting(world, 35, wait=200.0)
    for waiter in waiters:
        world.advance(2)
        holder.release()
        world.advance(0.01)
        assert waiter.held
        holder = waiter
        assert world.server.left(KEYS[2]) > 50


def test_waiter_asks_redis_when_little_of_its_grant_is_left(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.subscriptions[-1].late = 1.9
    world.advance(3)
    waiter.process.port.log.clear()

    holder.release()
    world.advance(2)

    assert waiter.is_live
    assert {"enter", "enqueue"} & set(waiter.process.port.verbs)
    assert waiter.claim.deadline <= world.clock.now + world.server.left(KEY)


def test_waiter_missing_from_the_queue_regains_its_position(world: World) -> None:
    holder = world.holder(expire=60)
    first, _ = waiting(world, 2, wait=60)
    world.server.run(("HDEL", KEYS[1], first.claim.queue_entry))

    world.advance(3)
    tickets = sorted(world.server.members(KEYS[1]).values())
    holder.release()
    world.advance(0.01)

    assert tickets == [1, 2]
    assert first.held


def test_lock_of_a_crashed_process_is_handed_off_at_its_expiry(world: World) -> None:
    world.holder(expire=3)
    (waiter,) = waiting(world)

    world.advance(3.1)

    assert waiter.held
    assert waiter.at == pytest.approx(3.0, abs=0.05)


def test_crashed_waiters_are_skipped(world: World) -> None:
    holder = world.holder()
    dead, living = waiting(world, 2)
    dead.process.lease_loop.freeze(1000)
    dead.process.subscriptions[-1].cut()

    holder.release()
    world.advance(0.01)

    assert living.held


def test_paused_process_delays_others_by_one_grant(world: World) -> None:
    holder = world.holder(expire=60)
    paused = world.process()
    stuck = [paused.acquire(wait=60) for _ in range(3)]
    world.advance(0.05)
    (other,) = waiting(world, wait=60)
    paused.lease_loop.freeze(30)

    holder.release()
    world.advance(2.7)

    assert not any(one.held for one in stuck)
    assert other.held


def test_external_lock_is_rechecked_at_growing_intervals(world: World) -> None:
    world.server.put(KEY, EXTERNAL, 60)
    (waiter,) = waiting(world, wait=60)

    world.advance(5)
    rechecks = [sent.at for sent in waiter.process.port.log if sent.verb == "recheck"]
    gaps = [later - former for former, later in pairwise(rechecks)]

    assert rechecks[0] - 1000 < 0.06
    assert gaps[0] == pytest.approx(0.05, abs=0.01)
    assert gaps[-1] == pytest.approx(0.25, abs=0.01)


def test_lock_deleted_by_an_external_client_is_acquired_soon(world: World) -> None:
    world.server.put(KEY, EXTERNAL, 60)
    (waiter,) = waiting(world, wait=60)
    world.advance(5)

    world.server.drop(KEY)
    world.advance(0.3)

    assert waiter.held


def test_former_entry_is_known_until_it_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that comes in between finds it, and may have been granted the lock by it."""
    known: list[bool] = []
    leave = ClaimEntry.leave_former

    async def recorded(self: ClaimEntry) -> None:
        known.append(self._claim.queue_wait is self)
        await leave(self)

    async def left(port: object, key: bytes, former: str) -> None:
        known.append(former in entry.entries())

    monkeypatch.setattr(ClaimEntry, "leave_former", recorded)
    monkeypatch.setattr(entry_requests, "leave_former", left)
    world.holder()
    (attempt,) = waiting(world, wait=1)
    entry = attempt.claim.queue_wait
    entry._former = "channel|former|2500"
    world.advance(2)

    assert known == [True, True]
    assert entry._former == ""
    assert attempt.claim.queue_wait is None
