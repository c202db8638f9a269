"""Each thread leaves its own block of a shared lock, with thread switches at any line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.simulation import Clock, SimulatedPort, SimulatedServer
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators import redislock
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators.lease import Lease, current_lease, running
from redis_lock_decorators.redislock import RedisLock

SCENES = Scenes(
    *("redis_lock_decorators/redislock", "lease_facts", "redis_lock_decorators/lease"),
    *("redis_lock_decorators/blocks", "by_hand"),
)


def unheld(plan: LockConfig, lock_names: tuple[str, ...]) -> Lease:
    """A lease on a separate server, where the lock is free."""
    port: Any = SimulatedPort(SimulatedServer(Clock(time.monotonic())))
    return Lease(claim_for(lock_names, plan.options, running()), port, plan.options)


def new_lock() -> RedisLock:
    return RedisLock("a", client=redis.Redis(), auto_renew=False)


def all_left(lock: RedisLock, leases: list[Lease]) -> Callable[[], None]:
    """A check that no block is open and each lease was released."""

    def check() -> None:
        assert lock._blocks == {}
        for lease in leases:
            assert lease._claim.state is ENDED
            port: Any = lease._port
            assert port.server.value(lease._claim.keys[0]) is None, "the key still exists"

    return check


def in_a_block(lock: RedisLock, leases: list[Lease]) -> Callable[[], None]:
    """An operation that enters and leaves a block of the lock."""

    def block() -> None:
        with lock as lease:
            leases.append(lease)
            assert current_lease() is lease
            lease.check()
        assert lease._claim.state is ENDED, "another block was left"
        assert current_lease() is None

    return block


@SCENES.add
def two_threads_are_in_blocks(switcher: Switcher) -> Scene:
    lock, leases = new_lock(), []  # type: ignore[var-annotated]
    work = in_a_block(lock, leases)
    return Scene(work, work, all_left(lock, leases))


@SCENES.add
def one_thread_is_in_two_blocks_and_another_in_one(switcher: Switcher) -> Scene:
    lock, leases = new_lock(), []  # type: ignore[var-annotated]

    def nested() -> None:
        with lock as outer:
            with lock as inner:
                leases.extend([outer, inner])
            assert inner._claim.state is ENDED
            assert outer._claim.state is not ENDED
            assert current_lease() is outer

    return Scene(nested, in_a_block(lock, leases), all_left(lock, leases))


@SCENES.add
def block_fails_while_another_is_entered(switcher: Switcher) -> Scene:
    lock, leases = new_lock(), []  # type: ignore[var-annotated]

    def failing() -> None:
        with pytest.raises(KeyboardInterrupt), lock as lease:
            leases.append(lease)
            raise KeyboardInterrupt
        assert leases[-1]._claim.state is ENDED or len(leases) > 1

    return Scene(failing, in_a_block(lock, leases), all_left(lock, leases))


@SCENES.add
def block_is_left_by_another_thread(switcher: Switcher) -> Scene:
    """The block is the only one in the context of the thread that leaves it."""
    lock, leases = new_lock(), []  # type: ignore[var-annotated]
    moved = lock.__enter__()
    leases.append(moved)

    def leave() -> None:
        redislock.enter(moved)
        lock.__exit__(None, None, None)
        assert moved._claim.state is ENDED

    return Scene(leave, in_a_block(lock, leases), all_left(lock, leases))


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_blocks_belong_to_their_threads_with_switches_at_any_line(
    scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redislock, "unheld", unheld)

    assert SCENES.explore(scene) > 10
