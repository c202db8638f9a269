"""A block of redis-py's ``Lock`` releases what it has acquired, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.asyncio.lock
from redis_lock_decorators import LockError, LockNotOwnedError, lock
from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot
from redis_lock_decorators.asyncio._task_tokens import TaskTokenSlots

KEY = b"a"


class Threads:
    kind: Any = lock.Lock
    client = redis.Redis()
    enter, exit = "__enter__", "__exit__"

    @staticmethod
    async def do(work: Any) -> Any:
        return work() if callable(work) else work

    @staticmethod
    def block(one: Any) -> Any:
        @contextlib.contextmanager
        def block() -> Any:
            with one:
                yield

        return block()


class Tasks:
    kind: Any = redis_lock_decorators.asyncio.lock.Lock
    client = redis.asyncio.Redis()
    enter, exit = "__aenter__", "__aexit__"

    @staticmethod
    async def do(work: Any) -> Any:
        return await (work() if callable(work) else work)

    @staticmethod
    def block(one: Any) -> Any:
        @contextlib.asynccontextmanager
        async def block() -> Any:
            async with one:
                yield

        return block()


class Scene:
    """A lock object that several threads or tasks share, on a simulated server."""

    def __init__(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.do = world.do
        self.server = SimulatedServer(Clock(monotonic()))
        port = SimulatedPort(self.server)
        port.renewer = SimpleNamespace(add=lambda watch: None, remove=lambda watch: None)
        monkeypatch.setattr(world.kind, "_port", lambda self: port)
        self.patch = monkeypatch.setattr
        self.lock = self.make()

    def make(self, **options: Any) -> Any:
        given = {"timeout": 10, "thread_local": False, **options}
        return self.world.kind(self.world.client, KEY, **given)

    def holder(self) -> object:
        return self.server.value(KEY)

    def is_inside(self, hold: TokenHold | None) -> bool:
        """Whether the hold has the lock in Redis, and is in the slot of the lock object."""
        assert hold is not None
        assert self.lock.local._slot().hold is hold
        return self.holder() is not None and hold.claim.state is not ENDED

    async def acquire(self) -> TokenHold:
        """Acquire through the same lock object, as another thread or task."""
        assert await self.do(self.lock.acquire())
        hold: TokenHold = self.lock.local._slot().hold
        return hold

    async def enter(self, block: Any) -> None:
        await self.do(getattr(block, self.world.enter)())

    async def leave(self, block: Any) -> None:
        await self.do(getattr(block, self.world.exit)(None, None, None))

    def done(self) -> Any:
        """Return what a method that does nothing returns."""
        return None if self.world.enter == "__enter__" else asyncio.sleep(0)

    def free(self) -> None:
        """Let the lock expire."""
        self.server.clock.now += 11


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(request.param, monkeypatch)


def run(test: Any) -> None:
    asyncio.run(test())


def own_world(world: Any, **methods: Any) -> Any:
    """Return the scene of a subclass with its own methods."""
    return type("Own", (world,), {"kind": type("Own", (world.kind,), methods)})


def running(scene: Scene) -> Any:
    """Return the running thread or task, in the form of ``TokenHold.by``."""
    blocking = scene.world is Threads
    return (lock if blocking else redis_lock_decorators.asyncio.lock)._running()


@pytest.mark.parametrize("error", [KeyboardInterrupt, redis.ResponseError])
def test_waiter_that_fails_does_not_release_another_hold(scene: Scene, error: Any) -> None:
    async def test() -> None:
        others: list[TokenHold] = []
        acquire = flow.acquire

        async def interrupted(port: Any, request: Any) -> bool:
            scene.patch(flow, "acquire", acquire)
            others.append(await other())
            raise error

        async def other() -> TokenHold:
            return await scene.acquire()

        scene.patch(flow, "acquire", interrupted)
        with pytest.raises(error):
            await scene.enter(scene.world.block(scene.lock))

        assert scene.is_inside(others[0])

    run(test)


def test_interrupted_release_does_not_release_another_hold(scene: Scene) -> None:
    async def test() -> None:
        others: list[TokenHold] = []
        release = flow.release

        async def interrupted(port: Any, claim: Claim) -> None:
            scene.patch(flow, "release", release)
            await release(port, claim)
            others.append(await scene.acquire())
            claim.reopen()  # as if the reply was lost
            raise KeyboardInterrupt

        block = scene.world.block(scene.lock)
        await scene.enter(block)
        scene.patch(flow, "release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await scene.leave(block)

        assert scene.is_inside(others[0])

    run(test)


@pytest.mark.parametrize("shared", [True, False])
def test_expired_block_does_not_release_another_hold(scene: Scene, shared: bool) -> None:
    async def test() -> None:
        scene.lock = scene.make(thread_local=not shared)
        one, two = scene.world.block(scene.lock), scene.world.block(scene.lock)
        await scene.enter(one)
        scene.free()
        await scene.enter(two)
        held = scene.lock.local._slot().hold

        with pytest.raises(LockNotOwnedError):
            await scene.leave(one)

        assert scene.is_inside(held)
        await scene.leave(two)
        assert scene.holder() is None

    run(test)


def test_hold_released_in_a_block_is_not_released_again_at_its_end(scene: Scene) -> None:
    async def test() -> None:
        block = scene.world.block(scene.lock)
        await scene.enter(block)
        await scene.do(scene.lock.release())
        other = await scene.acquire()
        other.by = None  # another has acquired it

        with pytest.raises(LockError):
            await scene.leave(block)

        assert scene.is_inside(other)

    run(test)


@pytest.mark.parametrize("own", [False, True], ids=["ours", "subclass"])
def test_block_released_early_does_not_release_another_block(scene: Scene, own: bool) -> None:
    async def test() -> None:
        def acquire(one: Any) -> Any:
            return kind.acquire(one)

        kind = scene.world.kind
        if own:
            scene.world = own_world(scene.world, acquire=acquire)
            scene.lock = scene.make()
        one, two = scene.world.block(scene.lock), scene.world.block(scene.lock)
        await scene.enter(one)
        await scene.do(scene.lock.release())
        await scene.enter(two)
        held = scene.lock.local._slot().hold

        with pytest.raises(LockNotOwnedError):
            await scene.leave(one)

        assert scene.is_inside(held)
        await scene.leave(two)
        assert scene.holder() is None

    run(test)


def test_block_released_early_does_not_release_a_block_being_entered(scene: Scene) -> None:
    """Another thread may leave it when this one has just acquired the lock for the next block."""

    async def test() -> None:
        early = TokenHold(claim_on(KEY, 10), running(scene))
        early.is_gone = True
        left: list[TokenHold | None] = []
        opening = scene.world.kind._open

        def opened(one: Any, *arguments: Any) -> None:
            left.append(one._hold_of(SimpleNamespace(held=early)))
            opening(one, *arguments)

        scene.patch(scene.world.kind, "_open", opened)
        await scene.enter(scene.world.block(scene.lock))

        assert left == [early]

    run(test)


def test_hold_reacquired_in_a_block_is_released_at_its_end(scene: Scene) -> None:
    async def test() -> None:
        block = scene.world.block(scene.lock)
        await scene.enter(block)
        await scene.do(scene.lock.release())
        await scene.acquire()

        await scene.leave(block)

        assert scene.holder() is None

    run(test)


def test_methods_of_a_subclass_are_called(scene: Scene) -> None:
    async def test() -> None:
        def acquire(one: Any, *arguments: Any, **options: Any) -> Any:
            called.append("acquire")
            return scene.world.kind.acquire(one, *arguments, **options)

        def release(one: Any) -> Any:
            called.append("release")
            return scene.world.kind.release(one)

        called: list[str] = []
        own = type("Own", (scene.world.kind,), {"acquire": acquire, "release": release})
        block = scene.world.block(own(scene.world.client, KEY, timeout=10))
        await scene.enter(block)
        assert scene.holder() is not None
        await scene.leave(block)

        assert called == ["acquire", "release"]
        assert scene.holder() is None

    run(test)


def fails(taken: bool) -> bool:
    raise ValueError(taken)


@pytest.mark.parametrize(
    ("gives", "error"), [(fails, ValueError), (lambda taken: None, LockError)], ids=["fails", "no"]
)
@pytest.mark.parametrize("shared", [True, False])
def test_failing_acquire_of_a_subclass_leaves_nothing_held(
    scene: Scene, gives: Any, error: Any, shared: bool
) -> None:
    async def test() -> None:
        scene.world = own_world(scene.world, acquire=then(scene.world, gives))
        scene.lock = scene.make(auto_renew=True, thread_local=not shared)

        with pytest.raises(error):
            await scene.enter(scene.world.block(scene.lock))

        assert scene.holder() is None
        assert scene.lock.local._slot().hold is None

    run(test)


def test_failing_acquire_of_a_subclass_does_not_release_another_hold(scene: Scene) -> None:
    async def test() -> None:
        def refused(taken: bool) -> bool:
            scene.lock.local._slot().hold.by = None  # another has acquired it
            raise ValueError(taken)

        scene.world = own_world(scene.world, acquire=then(scene.world, refused))
        scene.lock = scene.make()
        with pytest.raises(ValueError, match="True"):
            await scene.enter(scene.world.block(scene.lock))

        assert scene.is_inside(scene.lock.local._slot().hold)

    run(test)


def test_lock_remains_held_if_a_subclass_fails_to_enter_it_again(scene: Scene) -> None:
    async def test() -> None:
        held = await scene.acquire()
        scene.patch(scene.world.kind, "_has_own", lambda one, method: method == "acquire")
        scene.patch(scene.world.kind, "acquire", failing)
        with pytest.raises(ValueError, match="held"):
            await scene.enter(scene.world.block(scene.lock))

        assert scene.is_inside(held)

    def failing(one: Any) -> Any:
        blocking = scene.world is Threads
        return fails_now() if blocking else fails_later()

    def fails_now() -> None:
        raise ValueError("held")

    async def fails_later() -> None:
        fails_now()

    run(test)


def then(world: Any, gives: Any) -> Any:
    """A method that acquires the lock, but returns another value than True or False."""
    kind = world.kind

    async def acquire_async(one: Any) -> Any:
        return gives(await kind.acquire(one))

    return (lambda one: gives(kind.acquire(one))) if world is Threads else acquire_async


def test_release_of_a_subclass_does_not_release_another_hold(scene: Scene) -> None:
    async def test() -> None:
        def release(one: Any) -> Any:
            called.append(one.local._slot().hold)
            return kind.release(one)

        kind, called = scene.world.kind, []  # type: ignore[var-annotated]
        scene.world = own_world(scene.world, release=release)
        scene.lock = scene.make()
        one, two = scene.world.block(scene.lock), scene.world.block(scene.lock)
        await scene.enter(one)
        scene.free()
        await scene.enter(two)
        held = scene.lock.local._slot().hold

        with pytest.raises(LockNotOwnedError):
            await scene.leave(one)

        assert scene.is_inside(held)
        await scene.leave(two)
        assert called == [held]
        assert scene.holder() is None

    run(test)


def test_release_of_a_subclass_is_called_if_nothing_is_held(scene: Scene) -> None:
    """It may ignore that the lock was released in the block."""

    async def test() -> None:
        def release(one: Any) -> Any:
            called.append(one)
            return kind.release(one) if len(called) == 1 else scene.done()

        kind, called = scene.world.kind, []  # type: ignore[var-annotated]
        scene.world = own_world(scene.world, release=release)
        scene.lock = scene.make()
        block = scene.world.block(scene.lock)
        await scene.enter(block)
        await scene.do(scene.lock.release())

        await scene.leave(block)

        assert called == [scene.lock] * 2

    run(test)


def test_renewal_ends_if_a_block_is_collected_without_its_exit(scene: Scene) -> None:
    async def test() -> None:
        scene.lock = scene.make(auto_renew=True)
        enter, leave = [getattr(scene.lock, name) for name in (scene.world.enter, scene.world.exit)]
        await scene.do(enter())
        hold = scene.lock.local._slot().hold
        assert hold.renewal_handle is not None

        del enter, leave
        gc.collect()

        assert hold.renewal_handle is None
        await scene.do(scene.lock.release())
        assert scene.holder() is None

    run(test)


def test_methods_called_repeatedly_belong_to_no_block(scene: Scene) -> None:
    async def test() -> None:
        enter, leave = [getattr(scene.lock, name) for name in (scene.world.enter, scene.world.exit)]
        for _ in range(3):
            await scene.do(enter())
            assert scene.holder() is not None
            await scene.do(leave(None, None, None))
            assert scene.holder() is None

    run(test)


# Direct calls, where a task releases what another has acquired


def ended_task_holds(token_slots: TaskTokenSlots, deadline: float) -> TokenHold:
    """Acquire in a task that ends, until the given time."""

    async def acquire() -> TokenHold:
        hold = TokenHold(claim_on(KEY, 10))
        hold.claim.deadline = deadline
        token_slots.own().put(hold)
        return hold

    return asyncio.run(acquire())


async def to_release(token_slots: TaskTokenSlots) -> TokenHold | None:
    return token_slots.to_release(by_hand=True)


def test_task_releases_the_hold_of_the_only_task_that_acquired() -> None:
    token_slots = TaskTokenSlots()
    hold = ended_task_holds(token_slots, monotonic() + 60)

    assert asyncio.run(to_release(token_slots)) is hold


def test_task_releases_nothing_if_an_expired_hold_could_be_meant() -> None:
    token_slots = TaskTokenSlots()
    ended_task_holds(token_slots, monotonic() - 1)
    ended_task_holds(token_slots, monotonic() + 60)
    gc.collect()

    assert asyncio.run(to_release(token_slots)) is None


def test_expired_hold_prevents_only_one_release() -> None:
    token_slots = TaskTokenSlots()
    ended_task_holds(token_slots, monotonic() - 1)
    hold = ended_task_holds(token_slots, monotonic() + 60)
    gc.collect()

    assert asyncio.run(to_release(token_slots)) is None
    assert asyncio.run(to_release(token_slots)) is hold


def test_slot_has_only_its_last_acquisition() -> None:
    token_slot, first, second = (
        TokenSlot(),
        TokenHold(claim_on(KEY, 10)),
        TokenHold(claim_on(KEY, 10)),
    )
    token_slot.put(first)
    token_slot.put(second)

    first.forget()
    assert token_slot.hold is second
    second.forget()
    assert token_slot.hold is None
    assert token_slot.claim is None
