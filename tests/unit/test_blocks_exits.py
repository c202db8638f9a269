"""Exits of blocks that are interrupted or called directly; an ambiguous exit is refused."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.block_scenes import APIS, Blocking, Scene, is_inside, run, use_separate_servers
from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.asyncio.lease
import redis_lock_decorators.asyncio.redislock
import redis_lock_decorators.lease
from redis_lock_decorators import LockError, LockLostError, redislock
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io import blocking_port
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import claim_for


def elsewhere(context: contextvars.Context, work: Any) -> Any:
    """Run a coroutine in another context, outside tasks."""
    with pytest.raises(StopIteration) as stop:
        context.run(work.send, None)
    return stop.value.value


@pytest.fixture(params=APIS, ids=["threads", "tasks"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_separate_servers(request.param, monkeypatch)
    return request.param


# Exits that are not run


@contextlib.contextmanager
def interrupted_at_the_entry_of(function: Any) -> Iterator[None]:
    """Raise KeyboardInterrupt before the function's first line, like a signal handler."""

    def call(frame: Any, event: str, argument: object) -> None:
        if frame.f_code is function.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try:
            sys.settrace(call)
            yield
        finally:
            sys.settrace(None)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_lease_is_abandoned_if_its_exit_is_interrupted_at_once(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    delegated: deque[Any] = deque()
    monkeypatch.setattr(redis_lock_decorators.asyncio.lease, "unreleased", delegated)
    monkeypatch.setattr(redis_lock_decorators.asyncio.lease, "release_soon", id)
    monkeypatch.setattr(SimulatedPort, "loop", "the event loop", raising=False)
    scene = Scene(api)
    leases: list[Any] = []

    def block() -> None:
        with scene.lock as lease:
            leases.append(lease)

    async def async_block() -> None:
        async with scene.lock as lease:
            leases.append(lease)

    with interrupted_at_the_entry_of(api.module.RedisLock._leave):
        if api is Blocking:
            block()
        else:
            steps = async_block()
            with pytest.raises(StopIteration):
                steps.send(None)

    gc.collect()
    (lease,) = leases
    assert scene.lock._blocks == {}
    assert lease._claim.owner is None, "an interrupted thread would wait for itself"
    assert lease._block is None
    if api is not Blocking:
        assert delegated == deque([("the event loop", lease._undo)])


# Direct calls of exits


def test_interrupted_exit_leaves_no_coroutine_without_an_end(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    use_separate_servers(Blocking, monkeypatch)
    lease = Scene(Blocking).lock.acquire()

    with interrupted_at_the_entry_of(blocking_port.run):
        lease._leave(None, None, None, None)
    gc.collect()

    assert lease._claim.state is ENDED
    assert [str(found.message) for found in recwarn] == []


def test_direct_exit_releases_the_only_lease_of_this_context(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        here = await scene.lost()
        context = contextvars.Context()
        there = await enter_in(context, scene)

        with pytest.raises(LockLostError):
            await scene.leave()

        assert is_inside(there)
        assert here._claim.lost_reason == "test"

    async def enter_in(context: contextvars.Context, scene: Any) -> Any:
        if api is Blocking:
            return context.run(scene.lock.__enter__)
        return elsewhere(context, scene.lock.__aenter__())

    run(test)


def test_direct_exit_of_one_of_two_blocks_is_refused(api: Any) -> None:
    """A thread of a pool enters many blocks, and leaves those of other threads."""

    async def test() -> None:
        scene = Scene(api)
        await scene.lost()
        held = await scene.enter()

        with pytest.raises(LockError, match="2 blocks"):
            await scene.leave()

        assert is_inside(held)

    run(test)


def test_lock_works_after_an_ambiguous_exit(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        await scene.lost()
        await scene.enter()
        for text in ("2 blocks", "no open block"):
            with pytest.raises(LockError, match=text):
                await scene.leave()

        for _ in range(3):
            lease = await scene.enter()
            await scene.leave()
            assert lease._claim.state is ENDED
        assert scene.lock._blocks == {}

    run(test)


def test_loss_of_a_block_with_an_ambiguous_exit_is_reported(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        await scene.lost()
        held = await scene.enter()
        held._tracked = Watched()
        with pytest.raises(LockError, match="2 blocks"):
            await scene.leave()

        assert not held._tracked.options.auto_renew
        assert held in scene.lock._blocks
        held._tracked.over = True
        await scene.enter()
        await scene.leave()
        assert scene.lock._blocks == {}

    run(test)


class Watched:
    """The tracked lease."""

    def __init__(self) -> None:
        self.options = Options()
        self.over = False
        self.port = self
        self.renewer = self

    def is_over(self) -> bool:
        return self.over

    def remove(self, watch: object) -> None:
        self.over = True


# Code that runs in between, such as a signal handler or a finalizer


@pytest.mark.parametrize("place", ["enter", "forget"])
def test_entering_or_leaving_a_block_does_not_wait_for_itself(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def between(lease: Any) -> None:
        if place == "forget":
            original(lease)
        monkeypatch.setattr(module, place, original)
        with pytest.raises(LockError, match="wait for itself"):
            lock.acquire(5)
        if place == "enter":
            original(lease)
        seen.append(lease)

    module = redislock if place == "enter" else redis_lock_decorators.lease
    original, seen = getattr(module, place), []
    lock = lock_on_one_server(monkeypatch)
    monkeypatch.setattr(module, place, between)
    with lock as lease:
        pass

    assert seen == [lease]
    assert lease._claim.state is ENDED
    with lock as again:
        assert is_inside(again)


def lock_on_one_server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A lock whose leases are all on one simulated server."""
    port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))

    def unheld(config: Any, lock_names: tuple[str, ...]) -> Any:
        claim = claim_for(lock_names, config.options, Blocking.leases.running())
        return Blocking.leases.Lease(claim, port, config.options)

    monkeypatch.setattr(redislock, "unheld", unheld)
    return redislock.RedisLock("a", client=Blocking.client, **Blocking.options)


def test_block_that_is_left_elsewhere_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that entered it no longer owns it: it may wait until another has left it."""
    claims: list[Any] = []
    lock = lock_on_one_server(monkeypatch)
    block = Blocking.dependency(lock)
    lease = block.__enter__()
    here = lease._claim.owner
    leave = redis_lock_decorators.lease.leave

    def releasing(port: Any, claim: Any, *how: Any) -> Any:
        claims.append(claim.is_of(here))
        return leave(port, claim, *how)

    monkeypatch.setattr(redis_lock_decorators.lease, "leave", releasing)
    thread = threading.Thread(target=block.__exit__, args=(None, None, None))
    thread.start()
    thread.join()

    assert claims == [False]
    assert lease._claim.state is ENDED
