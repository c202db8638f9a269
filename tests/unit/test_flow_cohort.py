"""Cohorts in virtual time: order, hand-offs and their limits."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from support.cohort_world import KEY, KEYS, PATIENCE, SOON, World, held_with, stranded, verbs
from support.simulated_queue import Acquisition, QueuePort
from support.simulation import new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.queue.cohort import (
    MOST_EARLY,
    MOST_HAND_OFFS,
    MOST_SECONDS,
)
from redis_lock_decorators._flow.queue.cohort_wait import RECHECK
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.cohorts import MOST_COHORTS
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError


@pytest.fixture
def world() -> World:
    return World()


def test_waiters_enter_in_order_of_arrival_with_two_requests(world: World) -> None:
    crowd = world.crowd(world.process(), 20)

    order = world.serve_all()

    assert order == crowd
    assert crowd[0].process.port.verbs == ["acquire", "release"]
    assert world.is_empty()


def test_next_member_takes_over_the_lease(world: World) -> None:
    holder, (next_member, _) = held_with(world)
    identifier, deadline = holder.claim.identifier, holder.claim.deadline
    world.advance(0.2)

    holder.release()
    world.advance(0)

    assert world.inside() is next_member
    assert world.server.value(KEY) == next_member.claim.identifier == identifier
    assert next_member.claim.deadline == deadline
    assert next_member.claim.since == world.clock.now
    assert next_member.claim.duration == pytest.approx(deadline - world.clock.now)
    assert next_member.claim.hand_offs == 1


def test_next_member_renews_after_a_third_of_the_remaining_lease(world: World) -> None:
    holder, (next_member, _) = held_with(world)
    world.advance(0.2)

    holder.release()
    world.advance(0)
    port: Any = next_member.process.port
    watch = TrackedLease(
        next_member, print, next_member.claim, port, Options(expire=10, max_hold=60)
    )
    ownership = watch.ownership

    left = next_member.claim.deadline - world.clock.now
    assert watch.next_check()[0] - world.clock.now == pytest.approx(left / 3, abs=0.1)
    assert watch.renewal(world.clock.now).seconds == 10
    assert ownership is not None


def test_claim_is_over_after_its_hand_off(world: World) -> None:
    holder, (next_member, other) = held_with(world)
    identifier, port = holder.claim.identifier, holder.process.port

    holder.release()
    world.advance(SOON)
    holder.release()
    world.advance(SOON)

    assert holder.claim.state is ENDED
    assert holder.claim.identifier != identifier
    with pytest.raises(LockNotOwnedError, match="released"):
        run(extend(QueuePort(holder.process), holder.claim, 20))  # type: ignore[arg-type]
    assert port.verbs == []
    assert world.inside() is next_member
    assert not other.held


@pytest.mark.parametrize(("age", "most"), [(0.0, MOST_EARLY), (0.03, MOST_HAND_OFFS)])
def test_other_processes_enter_after_a_limited_number_of_hand_offs(
    world: World, age: float, most: int
) -> None:
    crowd = world.crowd(world.process(), most + 4)
    other = world.acquire(world.process(), strategy="queue")
    world.advance(SOON)
    crowd[0].claim.cohort.since = world.clock.now - age  # type: ignore[union-attr]

    order = world.serve_all()

    turns = most + 1
    assert order == [*crowd[:turns], other, *crowd[turns:]]
    assert world.is_empty()


def test_hand_offs_are_counted_from_the_last_acquisition_in_redis(world: World) -> None:
    crowd = world.crowd(world.process(), 2 * MOST_EARLY + 5)
    crowd[0].claim.cohort.since = world.clock.now  # type: ignore[union-attr]

    assert world.serve_all() == crowd

    assert sorted(verbs(crowd[0])) == ["acquire"] * 3 + ["release"] * 3


def test_waiters_send_nothing_while_a_member_holds_the_lock(world: World) -> None:
    holder, _ = held_with(world, 5)

    world.advance(9)

    assert holder.process.port.verbs == []


def test_first_waiter_leads_when_the_lock_is_released_in_redis(world: World) -> None:
    holder, (first, second) = held_with(world)
    holder.claim.hand_offs = MOST_EARLY

    holder.release()
    world.advance(0.01)

    assert world.inside() is first
    assert not second.held


def test_holder_that_acquires_again_waits_behind_the_others(world: World) -> None:
    holder, waiters = held_with(world)
    holder.claim.hand_offs = MOST_EARLY
    port: Any = QueuePort(holder.process)
    again = new_claim("a", owner=object())

    async def acquire_again() -> None:
        await release(port, holder.claim, "script")
        assert await acquire(port, again, PATIENCE, 0.1, "cohort") is None

    holder.process.lease_loop.start(acquire_again())
    world.advance(SOON)
    order = world.serve_all()

    assert order == waiters
    assert again.is_live(world.clock.now)
    assert again.hand_offs == 2


def test_only_the_leader_joins_the_queue(world: World) -> None:
    _, crowd = stranded(world, 5)

    entries = world.server.members(KEYS[1])

    assert len(entries) == 1
    assert crowd[0].claim.identifier in next(iter(entries))
    assert verbs(crowd[0]).count("enqueue") == 1


@pytest.mark.parametrize(("left", "is_handed_off"), [(0.8, True), (0.7, False)])
def test_lease_is_handed_off_while_three_tenths_of_a_grant_remain(
    world: World, left: float, is_handed_off: bool
) -> None:
    holder, (next_member, _) = held_with(world, expire=2.4, grant=2.4)
    identifier = holder.claim.identifier
    world.advance(holder.claim.deadline - left - world.clock.now)
    holder.claim.cohort.since = world.clock.now  # type: ignore[union-attr]

    holder.release()
    world.advance(SOON)

    assert world.inside() is next_member
    assert (next_member.claim.identifier == identifier) is is_handed_off
    assert ("release" in verbs(holder)) is not is_handed_off


@pytest.mark.parametrize(("seconds", "is_handed_off"), [(10, True), (10.2, False), (20, False)])
def test_extended_lease_is_handed_off_if_not_longer_than_expire(
    world: World, seconds: float, is_handed_off: bool
) -> None:
    holder, (next_member, _) = held_with(world, expire=10)
    run(extend(holder.process.port, holder.claim, seconds))

    holder.release()
    world.advance(SOON)

    assert world.inside() is next_member
    assert next_member.claim.deadline <= world.clock.now + 10
    assert ("release" in verbs(holder)) is not is_handed_off


@pytest.mark.parametrize(("seconds", "is_handed_off"), [(-0.02, True), (0.02, False)])
def test_lock_is_handed_off_for_a_limited_time(
    world: World, seconds: float, is_handed_off: bool
) -> None:
    holder, (next_member, last) = held_with(world)
    acquired_at: float = holder.claim.cohort.since  # type: ignore[union-attr]
    world.advance(0.1)
    holder.release()
    world.advance(acquired_at + MOST_SECONDS + seconds - world.clock.now)

    next_member.release()
    world.advance(SOON)

    assert world.inside() is last
    assert ("release" in verbs(next_member)) is not is_handed_off


@pytest.mark.parametrize(("expire", "hold"), [(10, 0.03), (10, 0.4), (0.6, 0.01), (10, 2)])
def test_loss_of_a_deleted_lock_is_reported_after_a_limited_time(
    world: World, expire: float, hold: float
) -> None:
    crowd = world.crowd(world.process(), 30, expire=expire)
    other = world.process()
    world.advance(SOON)
    world.server.drop(KEY)
    deleted = world.clock.now
    elsewhere = Acquisition(other, "a", 0)
    world.advance(0.01)
    assert elsewhere.held

    members = []
    while crowd[len(members)].is_live and not crowd[0].process.lease_loop.failures:
        members.append(crowd[len(members)])
        world.advance(hold)
        members[-1].release()
        world.advance(0.002)
    reported_at = world.clock.now

    assert [type(error) for error in crowd[0].process.lease_loop.failures] == [LockLostError]
    assert members[-1].claim.lost_reason is not None
    assert reported_at - deleted <= min(MOST_SECONDS, expire / 3) + hold + SOON
    assert world.server.value(KEY) == elsewhere.claim.identifier
    assert not any(attempt.held for attempt in crowd[len(members) :])


def test_granted_lock_is_handed_off_as_long_as_an_acquired_one(
    world: World,
) -> None:
    holder, (next_member, last) = stranded(world)
    world.advance(0.35)  # since the last PING, which limits the age of a message

    holder.release()
    world.advance(SOON)
    next_member.release()
    world.advance(SOON)

    assert world.inside() is last
    assert last.claim.hand_offs == 1


def lose(world: World, holder: Acquisition) -> None:
    world.server.drop(KEY)
    holder.claim.lost_reason = "its key is gone"


def outlive(world: World, holder: Acquisition) -> None:
    holder.process.lease_loop.freeze(20)
    world.advance(20)


@pytest.mark.parametrize("harm", [lose, outlive])
def test_lost_or_expired_lease_is_not_handed_off(world: World, harm: Any) -> None:
    holder, waiters = held_with(world)
    identifier = holder.claim.identifier

    harm(world, holder)
    holder.release()
    world.advance(RECHECK + SOON)

    assert [type(error) for error in holder.process.lease_loop.failures] == [LockLostError]
    assert world.inside() is waiters[0]
    assert waiters[0].claim.identifier != identifier
    assert world.serve_all() == waiters


def test_lock_under_min_hold_is_not_handed_off(world: World) -> None:
    holder, waiters = held_with(world)
    holder.claim.held_until = world.clock.now + 1

    holder.release()
    world.advance(0.9)
    early = world.inside()
    world.advance(0.2)

    assert early is None
    assert holder.process.port.verbs[0] == "min_hold"
    assert world.serve_all() == waiters


@pytest.mark.parametrize(("detail", "value"), [("fencing", True), ("replicas", 1)])
def test_locks_with_fencing_or_replicas_are_not_handed_off(
    world: World, detail: str, value: Any
) -> None:
    world.server.replicas = 1
    process, crowd = world.process(), []
    for _ in range(3):
        crowd.append(Acquisition(process, "a", PATIENCE, strategy="cohort"))
        setattr(crowd[-1].claim, detail, value)
        world.advance(SOON)
    world.attempts += crowd

    order = world.serve_all()

    assert order == crowd
    assert len({attempt.claim.identifier for attempt in crowd}) == 3
    assert process.cohorts == {}
    assert process.port.verbs.count("release") == 3


def test_lock_of_a_vanished_holder_is_acquired_when_its_lease_expires(world: World) -> None:
    _, waiters = held_with(world, expire=3)

    world.advance(2.9)
    early = [attempt for attempt in waiters if attempt.held]
    world.advance(0.2 + RECHECK)

    assert early == []
    assert world.inside() is waiters[0]
    assert world.serve_all() == waiters


def test_each_key_and_lease_length_has_its_own_cohort(world: World) -> None:
    holder, _ = held_with(world)

    shorter = world.acquire(holder.process, expire=5)
    elsewhere = world.acquire(holder.process, name="b")
    world.advance(SOON)

    assert not shorter.held
    assert shorter.claim.identifier in str(world.server.members(KEYS[1]))
    assert elsewhere.held
    assert len(holder.process.cohorts) == 3


def test_idle_cohorts_are_forgotten() -> None:
    client_state: ClientState[None] = ClientState(redis.Redis(), None, None)  # type: ignore[arg-type]
    awaited = client_state.cohort(b"awaited", 1000)
    waiter: Any = None
    awaited.add(CohortWaiter(None, waiter))  # type: ignore[arg-type]

    for number in range(2 * MOST_COHORTS):
        client_state.cohort(b"%d" % number, 1000)

    assert len(client_state.cohorts) <= MOST_COHORTS
    assert client_state.cohort(b"awaited", 1000) is awaited
