"""The cost of one operation hardly depends on the number of locks, waiters and leases."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
import redis
from support.queue_world import EXTERNAL, World
from support.simulated_queue import Acquisition
from support.simulation import new_claim
from support.steps import Steps

from redis_lock_decorators._flow.held_claims import HeldClaims
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.entries import QueueEntries
from redis_lock_decorators._flow.queue.entry_records import EnteredClaim
from redis_lock_decorators._flow.queue.recheck import Rechecks
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.current_leases import enter, forget
from redis_lock_decorators._shared.lease_base import LeaseBase

#: Operations that are compared, and the growth of the steps of each that is allowed.
FEW, MANY, MOST_GROWTH = 100, 400, 1.5
#: Creates the structures for a number of operations; returns a function that does them all.
Make = Callable[[int], Callable[[], object]]
MAKES: list[Make] = []


def grows(make: Make) -> Make:
    MAKES.append(make)
    return make


@grows
def waiters_for_distinct_locks(count: int) -> Callable[[], object]:
    world = World()
    process = world.process()
    for number in range(count):
        world.server.run(("SET", b"sys:lock:%d" % number, EXTERNAL + "~", "PX", 60_000))
        process.acquire(name=str(number))

    return lambda: world.advance(6)


@grows
def waiters_for_one_lock(count: int) -> Callable[[], object]:
    world = World()
    holder = world.holder()
    attempts = [holder.process.acquire(wait=100) for _ in range(count)]
    return lambda: hand_off(world, holder, attempts)


@grows
def cohort_waiters_for_one_lock(count: int) -> Callable[[], object]:
    world = World()
    holder = world.holder(strategy="cohort")
    attempts = [holder.process.acquire(wait=100, strategy="cohort") for _ in range(count)]
    return lambda: hand_off(world, holder, attempts)


def hand_off(world: World, holder: Acquisition, attempts: list[Acquisition]) -> None:
    world.advance(0.01)
    while attempts:
        holder.release()
        while not (held := [attempt for attempt in attempts if attempt.held]):
            world.advance(0.001)
        holder = held[0]
        attempts.remove(holder)


@grows
def rechecks(count: int) -> Callable[[], object]:
    world = World()
    process: Any = world.process()
    known = Rechecks(process.lease_loop, process.port, "channel")
    waiters: dict[bytes, Any] = {b"%d" % number: [object()] for number in range(count)}

    def work() -> None:
        for key in waiters:
            known.schedule(key, Refusal("a~", math.inf), 2.5)
            world.advance(0.001)
            known.absorb()
            known.first_due()
        for _ in range(2 * count):
            world.advance(2.5 / count)
            for key, _ in known.due(world.clock.now, lambda key: waiters[key]):
                known.end(key)
            known.first_due()

    return work


@grows
def entered_claims(count: int) -> Callable[[], object]:
    entries = QueueEntries()
    claims = [new_claim(str(number)) for number in range(count)]

    def work() -> None:
        for number, claim in enumerate(claims):
            queued: Any = QueuedWaiter(claim.keys[0], claim.identifier, None)  # type: ignore[arg-type]
            entries.join(queued)
            entries.enter(EnteredClaim(claim, claim.identifier, "", number + 1.0, math.inf))
            entries.leave(queued)
            entries.to_confirm(number)
            entries.next_confirmation(number)

    return work


@grows
def cohorts(count: int) -> Callable[[], object]:
    client: ClientState[None] = ClientState(redis.Redis(), None, None)  # type: ignore[arg-type]

    def work() -> None:
        for number in range(10 * count):
            claim = new_claim(str(number))
            member = CohortWaiter(claim, None)  # type: ignore[arg-type]
            client.cohort(claim.keys[0], 1000).add(member)

    return work


@grows
def members_of_a_cohort(count: int) -> Callable[[], object]:
    cohort, world = Cohort(), World()
    waiter: Any = world.holder().process.waiters
    members = [CohortWaiter(new_claim(str(number)), waiter) for number in range(count)]

    def work() -> None:
        for member in members:
            cohort.add(member)
            cohort.is_near(member)
        for member in members:
            cohort.first(0.0)
            cohort.withdraw(member)

    return work


@grows
def held_claims(count: int) -> Callable[[], object]:
    known, claims = HeldClaims(), [new_claim(str(number)) for number in range(count)]

    def work() -> None:
        for claim in claims:
            known.add(claim, lambda: 0.0)
        for claim in claims:
            known.forget(claim)

    return work


@grows
def arrivals(count: int) -> Callable[[], object]:
    order, claims = ArrivalOrder(), [new_claim(str(number)) for number in range(count)]

    def work() -> None:
        for claim in claims:
            order.join(b"a", claim)
        for claim in claims:
            order.is_first(b"a", claim)
            order.leave(b"a", claim)

    return work


@grows
def leases_in_one_stack(count: int) -> Callable[[], object]:
    leases = [LeaseBase(new_claim(str(number)), Options()) for number in range(count)]

    def work() -> None:
        for lease in leases:
            enter(lease)
        for lease in reversed(leases):
            forget(lease)

    return partial(copy_context().run, work)


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_steps_per_operation_do_not_grow(make: Make) -> None:
    few, many = Steps().of(make(FEW)) / FEW, Steps().of(make(MANY)) / MANY

    assert many <= MOST_GROWTH * few
