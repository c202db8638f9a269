"""Every request of every verb may be run once more, up to one and a half leases later.

Each story runs without copies first; then once more for each request that it made, with a copy of
that, and for many pairs of them. Nobody may be cheated by it, and nothing stay for ever: at most
nobody holds a lock for one lease.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

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

#: Seconds that the shortest lock here lasts.
SHORT = 0.3
#: Shares of a lease after which a copy comes.
LATE = (0.0001, 0.02, 0.1, 0.34, 1.0, 1.5)
#: Pairs of requests that are tried of each story: neighbours, and others. LARGE_MODELS=1: all.
MOST, SOME = 180, 60

Story = Callable[[World], None]


def of_leases(world: World) -> None:
    """Leases are renewed, extended and let go; others poll for them."""

    async def holds(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=20, way="poll", is_kept=True)
        if claim is not None:
            await process.pause(1.3 * LEASE)
            await extend(process.port, claim, 2 * LEASE)
            await process.pause(0.4 * LEASE)
            await extend(process.port, claim, 0.5 * LEASE)
            await process.pause(0.2 * LEASE)
        await process.ends(claim)

    for number in range(2):
        process = world.process()
        process.does(holds(process, 0.3 * number))


def of_fences(world: World) -> None:
    """Numbered locks, that replicas must know of."""
    world.server.replicas = 1
    seen: list[int] = []

    async def holds(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=20, fencing=True, replicas=after > 0)
        if claim is not None:
            assert claim.fence is not None
            assert claim.fence > max(seen, default=0)
            seen.append(claim.fence)
            await process.pause(0.3 * LEASE)
        await process.ends(claim)

    for number in range(3):
        process = world.process()
        process.does(holds(process, 0.1 * number))


def of_a_queue(world: World) -> None:
    """Waiters stand in line; one gives up, one lets its lease lapse, all others let go."""

    async def holds(process: Process, after: float, wait: float, lapses: bool = False) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=wait, is_kept=not lapses)
        if claim is not None:
            await process.pause(0.4 * LEASE)
            if not lapses:
                await process.ends(claim)

    for number in range(4):
        process = world.process()
        process.does(holds(process, 0.1 * number, 0.2 if number == 1 else 25, number == 2))
        process.does(holds(process, 0.1 * number + 0.05, 25))


def of_cohorts(world: World) -> None:
    """Waiters of two processes pass the lock on among themselves."""

    async def holds(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=25, way="cohort", is_kept=True)
        await process.pause(0.2 * LEASE)
        await process.ends(claim)

    for _ in range(2):
        process = world.process()
        for number in range(3):
            process.does(holds(process, 0.1 * number))


def of_least_times(world: World) -> None:
    """Locks stand for a while after they were let go."""

    async def holds(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=20)
        if claim is not None:
            claim.held_until = process.port.now() + 0.5 * LEASE
            await process.pause(0.1 * LEASE)
        await process.ends(claim, "transaction" if after == 0.2 else "script")

    for number in range(3):
        process = world.process()
        process.does(holds(process, 0.1 * number))


def of_stand_ins(world: World) -> None:
    """Locks of redis-py's kind: ends that move, ends that lie close together, no end, tokens."""

    async def holds(process: Process, after: float, token: str | None, endless: bool) -> None:
        await process.pause(after)
        expire = LONGEST if endless else LEASE
        claim = new_claim("a", expire=expire)
        claim.unique = False
        if not await redispy_lock.acquire(
            process.port, redispy_lock.AcquireRequest(claim, 25.0, 0.1, token, endless)
        ):
            return
        process.believes(claim, is_kept=not endless and token is None)
        await process.pause(0.1)
        if not endless:
            await moves(process, claim)
        await redispy_lock.release(process.port, claim)

    async def moves(process: Process, claim: Claim) -> None:
        for seconds in (LEASE - 0.017, LEASE, 0.8 * LEASE, LEASE):
            await redispy_adjust.adjust(process.port, claim, lambda left, to=seconds: to)  # type: ignore[misc]
            await process.pause(0.002)
        await redispy_adjust.adjust(process.port, claim, lambda left: left + LEASE)
        await process.pause(1.1 * LEASE)

    for number, (token, endless) in enumerate(
        [(None, True), (None, False), ("T", False), ("U", True), (None, True)]
    ):
        process = world.process()
        process.does(holds(process, 0.05 * number, token, endless))


def of_close_ends(world: World) -> None:
    """A short lock whose end is moved to and fro by less than its margin of safety allows for."""

    async def holds(process: Process) -> None:
        claim = new_claim("a", expire=SHORT)
        assert await redispy_lock.acquire(
            process.port, redispy_lock.AcquireRequest(claim, 5.0, 0.1, None, False)
        )
        process.believes(claim)
        for nearer in (0.017, 0.0, 0.012, 0.0, 0.02, 0.0):
            await redispy_adjust.adjust(process.port, claim, lambda left, to=SHORT - nearer: to)  # type: ignore[misc]
            await process.pause(0.002)
        await process.pause(0.8 * SHORT)
        await redispy_lock.release(process.port, claim)

    process = world.process()
    process.does(holds(process))


def of_functions(world: World) -> None:
    """The recipe, let go in each of the three ways."""

    async def holds(process: Process, after: float, method: str) -> None:
        await process.pause(after)
        claim = claim_on(b"sys:lock:a", LEASE)
        claim.unique = True
        if not await acquire_lock(process.port, claim, 20, 0.5):
            return
        process.believes(claim)
        await process.pause(0.5 * LEASE)
        assert await extend_lock(process.port, claim)
        await process.pause(0.5 * LEASE)
        assert await release_lock(process.port, claim, method)  # type: ignore[arg-type]

    for number, method in enumerate(("script", "transaction", "native")):
        process = world.process()
        process.does(holds(process, 0.1 * number, method))


def of_several_names(world: World) -> None:
    """Names of several slots, all or none; some are busy at first."""

    async def holds(process: Process, after: float, *names: str) -> None:
        await process.pause(after)
        claim = await process.takes(*names, wait=20, delta=0.5, is_kept=True)
        if claim is not None:
            await process.pause(0.6 * LEASE)
            await extend(process.port, claim, LEASE)
        await process.ends(claim)

    for number, names in enumerate([("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")]):
        process = world.process()
        process.does(holds(process, 0.1 * number, *names))


def of_force(world: World) -> None:
    """A lock whose holder is dead is let go by somebody else; others wait for it."""
    key = keys_of("", ("a",))
    world.server.put(key[0], "dead", 5 * LEASE)

    async def holds(process: Process, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=20, is_kept=True)
        if claim is not None:
            await process.pause(0.4 * LEASE)
        await process.ends(claim)

    async def forces(process: Process, after: float) -> None:
        await process.pause(after)
        await force(process.port, key, "dead")

    for number in range(3):
        process = world.process()
        process.does(holds(process, 0.1 * number))
    for share in (0.3, 0.6):
        process = world.process()
        process.does(forces(process, share * LEASE))


def of_moving_slots(world: World) -> None:
    """Locks are taken, renewed and let go while their keys are at two nodes for a while."""
    world.clock.at(world.clock.now + 0.4 * LEASE, lambda: setattr(world.server, "is_torn", True))
    world.clock.at(world.clock.now + 2.2 * LEASE, lambda: setattr(world.server, "is_torn", False))

    async def holds(process: Process, after: float, *names: str) -> None:
        await process.pause(after)
        claim = await process.takes(*names, wait=20, delta=0.5, is_kept=True)
        if claim is not None:
            await process.pause(0.6 * LEASE)
            await extend(process.port, claim, LEASE)
        await process.ends(claim)

    for number, names in enumerate([("{a}", "{a}b"), ("{a}",), ("{a}",), ("{a}", "{a}b")]):
        process = world.process()
        process.does(holds(process, 0.1 * number, *names))


STORIES: tuple[Story, ...] = (
    *(of_leases, of_fences, of_a_queue, of_cohorts),
    *(of_least_times, of_stand_ins, of_close_ends, of_functions, of_several_names),
    *(of_force, of_moving_slots),
)
every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


def told(story: Story, copies: Mapping[int, float]) -> World:
    """Run a story through."""
    world = World(copies, cluster=story in (of_several_names, of_moving_slots))
    story(world)
    world.run()
    return world


def pairs(story: Story, count: int) -> Iterable[dict[int, float]]:
    """Two copies each: of neighbours one after the other, and of any two at any times."""
    chance = random.Random(story.__name__)
    late = lasts(story)
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
    if "LARGE_MODELS" in os.environ:
        return following + every
    return following[:MOST] + chance.sample(every, min(SOME, len(every)))


def lasts(story: Story) -> float:
    """How many seconds the longest lease of a story lasts."""
    return {of_stand_ins: LONGEST, of_close_ends: SHORT}.get(story, LEASE)


@every_story
def test_story_is_well_without_copies(story: Story) -> None:
    assert told(story, {}).violations == []


@every_story
def test_copy_of_any_request_changes_nothing_that_somebody_believes(story: Story) -> None:
    for number in range(told(story, {}).server.count):
        for share in LATE:
            world = told(story, {number: share * lasts(story)})
            assert world.violations == [], (number, world.server.verbs[number], share)


@pytest.mark.timeout(600)  # with LARGE_MODELS, of all pairs
@every_story
def test_copies_of_any_two_requests_change_nothing_that_somebody_believes(story: Story) -> None:
    for copies in pairs(story, told(story, {}).server.count):
        world = told(story, copies)
        verbs = [world.server.verbs[number : number + 1] for number in copies]
        assert world.violations == [], (copies, verbs)


def test_every_script_and_command_is_met_by_some_story() -> None:
    folder = Path(redis_lock_decorators._lua.__file__).parent
    scripts = {file.stem for file in folder.glob("*.lua")} - set(INCLUDED.values())
    commands = {"SET", "GET", "WATCH", "EXEC", "DELIFEQ", "WAIT"}

    sent = {verb for story in STORIES for verbs in told(story, {}).server.verbs for verb in verbs}

    assert sent >= scripts | commands
