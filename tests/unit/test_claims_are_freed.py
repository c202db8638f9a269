"""Claims of a cohort are freed when they end, without the cyclic garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from support.cohort_world import SOON, World

from redis_lock_decorators._flow.claim import Claim


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def freed_after(world: World) -> None:
    """Forget all claims, and check that none of them is left."""
    claims = [weakref.ref(attempt.claim) for attempt in world.attempts]
    world.attempts.clear()
    world.advance(60)

    left = [claim() for claim in claims if claim() is not None]

    assert len(claims) > 1
    # The cohort refers to its last holder.
    assert len(left) <= 1, [_referrers(claim) for claim in left if claim is not None]


def _referrers(claim: Claim) -> list[str]:
    return [type(found).__name__ for found in gc.get_referrers(claim)]


def test_members_that_hand_a_lock_to_each_other_are_freed() -> None:
    world = World()
    world.crowd(world.process(), 20)

    assert len(world.serve_all()) == 20

    freed_after(world)


def test_leaders_that_hand_no_lock_to_others_are_freed() -> None:
    world = World()
    process = world.process()
    for _ in range(5):
        world.acquire(process).release()
        world.advance(SOON)

    freed_after(world)


def test_waiters_that_give_up_are_freed() -> None:
    world = World()
    process = world.process()
    holder = world.acquire(process)
    world.crowd(process, 5, wait=0.4)
    world.advance(1)
    holder.release()
    del holder

    freed_after(world)


def test_members_that_were_granted_the_lock_by_the_queue_are_freed() -> None:
    world = World()
    other = world.acquire(world.process(), strategy="queue")
    world.crowd(world.process(), 5)
    other.release()
    del other
    world.advance(SOON)
    world.serve_all()

    freed_after(world)
