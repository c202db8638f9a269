"""Every request of every verb may be executed again, up to one and a half leases later.

Each scenario runs without copies first, then once for each of its requests with a copy of that
one, and for many pairs of copies. No copy may contradict the state of a holder, and none may keep
a lock busy for longer than one lease.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.late_copies import LEASE, LONGEST, Process, World
from support.simulation import new_claim

import redis_lock_decorators._lua
from redis_lock_decorators._flow import redispy_adjust, redispy_lock
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.functions import acquire_lock, extend_lock, release_lock
from redis_lock_decorators._lua import INCLUDED
from redis_lock_decorators._rules.keys import keys_of

#: Seconds of the shortest lease.
SHORT = 0.3
#: Shares of a lease after which a copy arrives: one or two of them for each request, as many
#: requests are alike; ALL_PAIRS=1: all.
LATE = (0.0001, 0.02, 0.1, 0.34, 1.0, 1.5)
#: Scenarios with more requests get one of these copies for each.
FEW_REQUESTS = 50
#: Pairs of requests that are copied in each scenario: neighbours and others; ALL_PAIRS=1: all.
MOST, SOME = 40, 20

Scenario = Callable[[World], None]


def of_leases(world: World) -> None:
    """Leases are renewed, extended and released; others poll for them."""

    async def hold(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=20, strategy="poll", is_renewed=True)
        if claim is not None:
            await process.pause(1.3 * LEASE)
            await extend(process.port, claim, 2 * LEASE)
            await process.pause(0.4 * LEASE)
            await extend(process.port, claim, 0.5 * LEASE)
            await process.pause(0.2 * LEASE)
        await process.release(claim)

    for number in range(2):
        process = world.process()
        process.start(hold(process, 0.3 * number))


def of_fences(world: World) -> None:
    """Locks with fences, which replicas have to confirm."""
    world.server.replicas = 1
    seen: list[int] = []

    async def hold(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=20, fencing=True, replicas=after > 0)
        if claim is not None:
            assert claim.fence is not None
            assert claim.fence > max(seen, default=0)
            seen.append(claim.fence)
            await process.pause(0.3 * LEASE)
        await process.release(claim)

    for number in range(3):
        process = world.process()
        process.start(hold(process, 0.1 * number))


def of_a_queue(world: World) -> None:
    """Waiters join a queue; one gives up, one lets its lease expire, all others release."""

    async def hold(process: Process, after: float, wait: float, expires: bool = False) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=wait, is_renewed=not expires)
        if claim is not None:
            await process.pause(0.4 * LEASE)
            if not expires:
                await process.release(claim)

    for number in range(4):
        process = world.process()
        process.start(hold(process, 0.1 * number, 0.2 if number == 1 else 25, number == 2))
        process.start(hold(process, 0.1 * number + 0.05, 25))


def of_cohorts(world: World) -> None:
    """Cohorts of two processes hand off the lock."""

    async def hold(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=25, strategy="cohort", is_renewed=True)
        await process.pause(0.2 * LEASE)
        await process.release(claim)

    for _ in range(2):
        process = world.process()
        for number in range(3):
            process.start(hold(process, 0.1 * number))


def of_owner_info(world: World) -> None:
    """Holders store information about themselves, in a queue and in cohorts."""
    world.server.replicas = 1

    async def hold(process: Process, after: float, strategy: Any) -> None:
        await process.pause(after)
        claim = await process.acquire(
            "a",
            wait=25,
            strategy=strategy,
            is_renewed=True,
            is_informed=True,
            fencing=strategy == "queue" and after == 0.02,
        )
        await process.pause(0.05 if after < 0.04 else 0.2 * LEASE)
        await process.release(claim)

    for strategy in ("cohort", "queue"):
        process = world.process()
        for number in range(3):
            process.start(hold(process, 0.02 * number, strategy))


def of_min_hold(world: World) -> None:
    """Locks with ``min_hold``."""

    async def hold(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=20)
        if claim is not None:
            claim.held_until = process.port.now() + 0.5 * LEASE
            await process.pause(0.1 * LEASE)
        await process.release(claim, "transaction" if after == 0.2 else "script")

    for number in range(3):
        process = world.process()
        process.start(hold(process, 0.1 * number))


def of_drop_ins(world: World) -> None:
    """Locks like redis-py's: with moved ends, without expiry, with tokens."""

    async def hold(process: Process, after: float, token: str | None, endless: bool) -> None:
        await process.pause(after)
        expire = LONGEST if endless else LEASE
        claim = new_claim("a", expire=expire)
        claim.unique = False
        if not await redispy_lock.acquire(
            process.port, redispy_lock.AcquireRequest(claim, 25.0, 0.1, token, endless)
        ):
            return
        process.assume_held(claim, is_renewed=not endless and token is None)
        await process.pause(0.1)
        if not endless:
            await move_end(process, claim)
        await redispy_lock.release(process.port, claim)

    async def move_end(process: Process, claim: Claim) -> None:
        for seconds in (LEASE - 0.017, LEASE, 0.8 * LEASE, LEASE):
            await redispy_adjust.adjust(process.port, claim, lambda left, to=seconds: to)  # type: ignore[misc]
            await process.pause(0.002)
        await redispy_adjust.adjust(process.port, claim, lambda left: left + LEASE)
        await process.pause(1.1 * LEASE)

    for number, (token, endless) in enumerate(
        [(None, True), (None, False), ("T", False), ("U", True), (None, True)]
    ):
        process = world.process()
        process.start(hold(process, 0.05 * number, token, endless))


def of_close_ends(world: World) -> None:
    """A short lease whose end is moved back and forth by less than its drift margin."""

    async def hold(process: Process) -> None:
        claim = new_claim("a", expire=SHORT)
        assert await redispy_lock.acquire(
            process.port, redispy_lock.AcquireRequest(claim, 5.0, 0.1, None, False)
        )
        process.assume_held(claim)
        for nearer in (0.017, 0.0, 0.012, 0.0, 0.02, 0.0):
            await redispy_adjust.adjust(process.port, claim, lambda left, to=SHORT - nearer: to)  # type: ignore[misc]
            await process.pause(0.002)
        await process.pause(0.8 * SHORT)
        await redispy_lock.release(process.port, claim)

    process = world.process()
    process.start(hold(process))


def of_functions(world: World) -> None:
    """Locks of the functions, released by each of the three methods."""

    async def hold(process: Process, after: float, method: str) -> None:
        await process.pause(after)
        claim = claim_on(b"sys:lock:a", LEASE)
        claim.unique = True
        if not await acquire_lock(process.port, claim, 20, 0.5):
            return
        process.assume_held(claim)
        await process.pause(0.5 * LEASE)
        assert await extend_lock(process.port, claim)
        await process.pause(0.5 * LEASE)
        assert await release_lock(process.port, claim, method)  # type: ignore[arg-type]

    for number, method in enumerate(("script", "transaction", "native")):
        process = world.process()
        process.start(hold(process, 0.1 * number, method))


def of_several_names(world: World) -> None:
    """Names of several slots, all or none; some are busy at first."""

    async def hold(process: Process, after: float, *names: str) -> None:
        await process.pause(after)
        claim = await process.acquire(*names, wait=20, delta=0.5, is_renewed=True)
        if claim is not None:
            await process.pause(0.6 * LEASE)
            await extend(process.port, claim, LEASE)
        await process.release(claim)

    for number, names in enumerate([("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")]):
        process = world.process()
        process.start(hold(process, 0.1 * number, *names))


def of_force(world: World) -> None:
    """A lock of a dead holder is released by ``force_release`` while others wait for it."""
    key = keys_of("", ("a",))
    world.server.put(key[0], "dead", 5 * LEASE)

    async def hold(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=20, is_renewed=True)
        if claim is not None:
            await process.pause(0.4 * LEASE)
        await process.release(claim)

    async def force_release(process: Process, after: float) -> None:
        await process.pause(after)
        await force(process.port, key, "dead")

    for number in range(3):
        process = world.process()
        process.start(hold(process, 0.1 * number))
    for share in (0.3, 0.6):
        process = world.process()
        process.start(force_release(process, share * LEASE))


def of_moving_slots(world: World) -> None:
    """Locks are acquired, renewed and released while their slot moves between two nodes."""
    world.clock.at(
        world.clock.now + 0.4 * LEASE, lambda: setattr(world.server, "is_slot_moving", True)
    )
    world.clock.at(
        world.clock.now + 2.2 * LEASE, lambda: setattr(world.server, "is_slot_moving", False)
    )

    async def hold(process: Process, after: float, *names: str) -> None:
        await process.pause(after)
        claim = await process.acquire(*names, wait=20, delta=0.5, is_renewed=True)
        if claim is not None:
            await process.pause(0.6 * LEASE)
            await extend(process.port, claim, LEASE)
        await process.release(claim)

    for number, names in enumerate([("{a}", "{a}b"), ("{a}",), ("{a}",), ("{a}", "{a}b")]):
        process = world.process()
        process.start(hold(process, 0.1 * number, *names))


SCENARIOS: tuple[Scenario, ...] = (
    *(of_leases, of_fences, of_a_queue, of_cohorts),
    *(of_min_hold, of_drop_ins, of_close_ends, of_functions, of_several_names),
    *(of_force, of_moving_slots, of_owner_info),
)
every_scenario = pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=lambda scenario: scenario.__name__
)


def run_scenario(scenario: Scenario, copies: Mapping[int, float]) -> World:
    """Run a scenario."""
    world = World(copies, cluster=scenario in (of_several_names, of_moving_slots))
    scenario(world)
    world.run()
    return world


def pairs(scenario: Scenario, count: int) -> Iterable[dict[int, float]]:
    """Pairs of copies: of consecutive requests, and of any two at any times."""
    chance = random.Random(scenario.__name__)
    late = longest_lease(scenario)
    following = [
        {number: share * late, number + gap: share * late + 0.001}
        for number in range(count)
        for gap in (1, 2, 3)
        for share in (0.05, 0.34, 1.0)
    ]
    every = [
        {one: chance.uniform(0, 1.5) * late, other: chance.uniform(0, 1.5) * late}
        for one, other in itertools.combinations(range(count), 2)
    ]
    if "ALL_PAIRS" in os.environ:
        return following + every
    some = chance.sample(every, min(SOME, len(every)))
    return chance.sample(following, min(MOST, len(following))) + some


def longest_lease(scenario: Scenario) -> float:
    """The seconds of the longest lease of a scenario."""
    return {of_drop_ins: LONGEST, of_close_ends: SHORT}.get(scenario, LEASE)


@every_scenario
def test_scenario_has_no_violations_without_copies(scenario: Scenario) -> None:
    assert run_scenario(scenario, {}).violations == []


@every_scenario
def test_copy_of_any_request_contradicts_no_holder(scenario: Scenario) -> None:
    count = run_scenario(scenario, {}).server.count
    step = 1 if "ALL_PAIRS" in os.environ else 3 if count <= FEW_REQUESTS else 6
    for number in range(count):
        for share in LATE[number % step :: step]:
            world = run_scenario(scenario, {number: share * longest_lease(scenario)})
            assert world.violations == [], (number, world.server.verbs[number], share)


@pytest.mark.timeout(600)  # with ALL_PAIRS, of all pairs
@every_scenario
def test_copies_of_any_two_requests_contradict_no_holder(scenario: Scenario) -> None:
    for copies in pairs(scenario, run_scenario(scenario, {}).server.count):
        world = run_scenario(scenario, copies)
        verbs = [world.server.verbs[number : number + 1] for number in copies]
        assert world.violations == [], (copies, verbs)


def test_every_script_and_command_occurs_in_a_scenario() -> None:
    folder = Path(redis_lock_decorators._lua.__file__).parent
    scripts = {file.stem for file in folder.glob("*.lua")} - {
        *itertools.chain(*INCLUDED.values()),
        "owner_info",  # wrapped around the others
    }
    commands = {"SET", "GET", "WATCH", "EXEC", "DELIFEQ", "WAIT"}

    sent = {
        verb
        for scenario in SCENARIOS
        for verbs in run_scenario(scenario, {}).server.verbs
        for verb in verbs
    }

    assert sent >= scripts | commands
