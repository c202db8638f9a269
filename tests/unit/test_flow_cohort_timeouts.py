"""Cohort waiters whose time ends before they lead: what they say about the lock."""

from __future__ import annotations

import pytest
import redis
from support.cohort_world import KEY, World, held_with, stranded
from support.faults import Fate, refused, request_lost


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("fate", [refused, request_lost])
def test_waiters_of_a_server_out_of_reach_get_its_error(world: World, fate: Fate) -> None:
    process = world.process()
    process.port.usual = fate

    world.acquire(process, wait=4.0)
    crowd = world.crowd(process, 3, wait=2.0)
    world.advance(30)

    assert [attempt.refusal for attempt in crowd] == [None] * 3
    assert all(isinstance(attempt.error, redis.ConnectionError) for attempt in crowd)


def test_waiter_that_comes_during_an_outage_gets_the_error_of_the_server(world: World) -> None:
    _, (leader, *_) = stranded(world, 2)
    leader.process.port.usual = refused

    late = world.acquire(leader.process, wait=1.0)
    world.advance(3)

    assert isinstance(late.error, redis.ConnectionError)


def test_waiter_names_the_holder_in_another_process(world: World) -> None:
    holder, (_, follower) = stranded(world, 2, wait=2.0)
    world.advance(3)

    assert follower.refusal is not None
    assert follower.refusal.holder == holder.claim.identifier
    assert follower.at == pytest.approx(2.0, abs=0.2)


def test_waiter_of_a_lock_held_in_its_process_sends_nothing(world: World) -> None:
    holder, (follower, _) = held_with(world, wait=2.0)
    world.advance(3)

    assert holder.process.port.verbs == []
    assert follower.refusal is not None
    assert follower.error is None


def test_waiter_acquires_by_its_last_try_a_lock_that_was_deleted(world: World) -> None:
    _, (leader,) = stranded(world, 1)
    follower = world.acquire(leader.process, wait=2.0)
    world.advance(1.9)
    world.server.drop(KEY)
    world.advance(0.3)

    assert follower.held
    assert world.server.value(KEY) == follower.claim.identifier
