"""A lock is released if the garbage collector closes its generator in a reference cycle.

It clears the weak references of a cycle before it closes the generators in it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.collected import (
    FORMS,
    LEASE_FORMS,
    Holding,
    begun,
    by_hand,
    collect_in_cycle,
    no_unraisable,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.lease
import redis_lock_decorators.lock
from redis_lock_decorators import _attempts, redis_lock, redislock
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.lease_base import claim_for

KEY = b"sys:lock:a"
NAMES: list[Any] = ["a", ["a", "b"]]


@pytest.fixture(autouse=True)
def _collected_only_by_the_test() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Any:
    port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))

    def unheld(config: Any, lock_names: tuple[str, ...]) -> Any:
        claim = claim_for(lock_names, config.options, redis_lock_decorators.lease.running())
        return redis_lock_decorators.lease.Lease(claim, port, config.options)

    for module in (_attempts, redislock):
        monkeypatch.setattr(module, "unheld", unheld)
    monkeypatch.setattr(redis_lock_decorators.lock.Lock, "_port", lambda _: port)
    return port


def is_held(port: Any) -> bool:
    return port.server.value(KEY) is not None


@pytest.mark.parametrize("kept", ["nothing", "lock", "lease"])
@pytest.mark.parametrize("names", NAMES, ids=["one", "two"])
@pytest.mark.parametrize("hold", [*FORMS, *LEASE_FORMS])
def test_lock_is_released(port: Any, hold: Holding, names: Any, kept: str) -> None:
    lock = redislock.RedisLock(names, client=redis.Redis(), auto_renew=False)
    generator, lease = begun(hold(lock, list))
    assert is_held(port)
    keeps = {"lock": lock, "lease": lease}.get(kept)
    del lock, lease

    with no_unraisable():
        collect_in_cycle(generator)

    assert not is_held(port)
    assert keeps is None or kept in repr(type(keeps)).lower()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("timeout", [10, None])
@pytest.mark.parametrize("hold", [*FORMS, by_hand])
def test_drop_in_is_released(port: Any, hold: Holding, timeout: Any, kept: bool) -> None:
    lock = redis_lock_decorators.lock.Lock(redis.Redis(), KEY, timeout)
    generator, _ = begun(hold(lock, list))
    assert is_held(port)
    keeps = lock if kept else None
    del lock, _

    with no_unraisable():
        collect_in_cycle(generator)

    assert not is_held(port)
    assert keeps is None or keeps.local.token is None


def test_lock_of_a_decorated_generator_is_released(port: Any) -> None:
    @redis_lock("a", client=redis.Redis(), auto_renew=False)
    def work() -> Any:
        yield

    generator, _ = begun(work())
    assert is_held(port)

    with no_unraisable():
        collect_in_cycle(generator)

    assert not is_held(port)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_block_entered_again_by_the_same_methods_is_released_once(port: Any) -> None:
    """What is no longer the block's own is not released by its exit."""
    lock = redislock.RedisLock("a", client=redis.Redis(), auto_renew=False)
    enter, leave = lock.__enter__, lock.__exit__
    enter()
    leave(None, None, None)
    enter()
    leave(None, None, None)

    def leaving(leave: Any) -> Any:
        try:
            yield
        finally:
            leave(None, None, None)

    other = lock.acquire()
    generator, _ = begun(leaving(leave))
    del leave, enter
    collect_in_cycle(generator)

    assert is_held(port)
    assert other is not None
