"""Each block releases what it has entered, in any thread or task; an ambiguous exit is refused.

The tests mark a lease as lost by hand, so that another thread or task can enter a block of the same
lock object.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.asyncio.lease
import redis_lock_decorators.asyncio.redislock
import redis_lock_decorators.lease
from redis_lock_decorators import LockError, LockLostError, LockNotOwnedError, redislock
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import claim_for


class Blocking:
    """Blocks of threads."""

    module: Any = redislock
    leases: Any = redis_lock_decorators.lease
    client = redis.Redis()
    enter, exit = "__enter__", "__exit__"
    options: ClassVar[Any] = {"auto_renew": False}

    @staticmethod
    async def do(work: Any) -> Any:
        return work

    @staticmethod
    @contextlib.asynccontextmanager
    async def held(lock: Any) -> Any:
        with lock as lease:
            yield lease

    @staticmethod
    @contextlib.asynccontextmanager
    async def stack() -> Any:
        with contextlib.ExitStack() as stack:
            yield stack, stack.enter_context, stack.close

    @staticmethod
    def dependency(lock: Any) -> Any:
        @contextlib.contextmanager
        def block() -> Iterator[Any]:
            with lock as lease:
                yield lease

        return block()


class Asyncio:
    """Blocks of tasks."""

    module: Any = redis_lock_decorators.asyncio.redislock
    leases: Any = redis_lock_decorators.asyncio.lease
    client = redis.asyncio.Redis()
    enter, exit = "__aenter__", "__aexit__"
    options: ClassVar[Any] = {"auto_renew": False, "cancel_on_lost": False}

    @staticmethod
    async def do(work: Awaitable[Any]) -> Any:
        return await work

    @staticmethod
    @contextlib.asynccontextmanager
    async def held(lock: Any) -> Any:
        async with lock as lease:
            yield lease

    @staticmethod
    @contextlib.asynccontextmanager
    async def stack() -> Any:
        async with contextlib.AsyncExitStack() as stack:
            yield stack, stack.enter_async_context, stack.aclose

    @staticmethod
    def dependency(lock: Any) -> Any:
        @contextlib.asynccontextmanager
        async def block() -> Any:
            async with lock as lease:
                yield lease

        return block()


WORLDS = [Blocking, Asyncio]


class Scene:
    """A lock of threads or tasks. Each lease has a separate server, where the lock is free."""

    def __init__(self, world: Any, kind: Any = None) -> None:
        self.world = world
        self.do = world.do
        self.lock = (kind or world.module.RedisLock)("a", client=world.client, **world.options)

    async def enter(self) -> Any:
        """Call the first method directly."""
        return await self.do(getattr(self.lock, self.world.enter)())

    async def leave(self, *failure: object) -> Any:
        """Call the exit directly."""
        return await self.do(getattr(self.lock, self.world.exit)(*(failure or (None,) * 3)))

    async def lost(self) -> Any:
        """Return the lost lease of a block that was entered by a direct call."""
        return lose(await self.enter())


def lose(lease: Any) -> Any:
    lease._claim.lost_reason = "test"
    return lease


def is_inside(lease: Any) -> bool:
    """Whether a lease is held, and in Redis."""
    held = lease._port.server.value(lease._claim.keys[0]) is not None
    return held and lease._claim.state is not ENDED and not lease.lost


def elsewhere(context: contextvars.Context, work: Any) -> Any:
    """Run a coroutine in another context, outside tasks."""
    with pytest.raises(StopIteration) as stop:
        context.run(work.send, None)
    return stop.value.value


@pytest.fixture(params=WORLDS, ids=["threads", "tasks"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_servers_of_their_own(request.param, monkeypatch)
    return request.param


def use_servers_of_their_own(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each lease a separate server, so that the lock is always free."""

    def unheld(plan: Any, lock_names: tuple[str, ...], owner: object = None) -> Any:
        port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))
        claim = claim_for(lock_names, plan.options, owner or world.leases.running())
        return world.leases.Lease(claim, port, plan.options)

    monkeypatch.setattr(world.module, "unheld", unheld)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


# Blocks with an exit of their own


def test_generator_block_releases_its_own_lease(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        enter, leave = world.enter, world.exit
        one, two = world.dependency(scene.lock), world.dependency(scene.lock)
        lost = lose(await scene.do(getattr(one, enter)()))
        held = await scene.do(getattr(two, enter)())

        with pytest.raises(LockLostError):
            await scene.do(getattr(one, leave)(None, None, None))

        assert is_inside(held)
        await scene.do(getattr(two, leave)(None, None, None))
        assert held._claim.state is ENDED
        assert lost._claim.lost_reason == "test"
        assert scene.lock._blocks == {}

    run(test)


def test_exit_stack_releases_its_own_lease(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        async with world.stack() as (_, push, close):
            lose(await scene.do(push(scene.lock)))
            held = await scene.enter()

            with pytest.raises(LockLostError):
                await scene.do(close())

            assert is_inside(held)
            await scene.leave()
            assert held._claim.state is ENDED
            assert scene.lock._blocks == {}

    run(test)


def test_block_inside_a_lost_block_releases_its_own_lease(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        with pytest.raises(LockLostError):
            async with world.held(scene.lock) as outer:
                lose(outer)
                async with world.held(scene.lock) as inner:
                    pass
                assert inner._claim.state is ENDED
                assert outer._claim.state is not ENDED

    run(test)


def test_block_of_a_subclass_with_its_own_enter_has_its_own_exit(world: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            entered.append(lock)
            return getattr(super(kind, lock), world.enter)()

        kind = type("Own", (world.module.RedisLock,), {world.enter: enter})
        entered: list[Any] = []
        scene = Scene(world, kind)
        one, two = world.dependency(scene.lock), world.dependency(scene.lock)
        lose(await scene.do(getattr(one, world.enter)()))
        held = await scene.do(getattr(two, world.enter)())

        with pytest.raises(LockLostError):
            await scene.do(getattr(one, world.exit)(None, None, None))

        assert is_inside(held)
        await scene.do(getattr(two, world.exit)(None, None, None))
        assert entered == [scene.lock] * 2

    run(test)


@pytest.mark.parametrize("by_class", [False, True], ids=["super", "base"])
def test_exit_stack_releases_what_a_subclass_has_entered(world: Any, by_class: bool) -> None:
    """The stack looks up the exit at the class; the subclass looks up ours at the lock."""

    async def test() -> None:
        def enter(lock: Any) -> Any:
            place, first = (base, (lock,)) if by_class else (super(kind, lock), ())
            return getattr(place, world.enter)(*first)

        base = world.module.RedisLock
        kind = type("Own", (base,), {world.enter: enter})
        scene = Scene(world, kind)
        async with world.stack() as (_, push, close):
            lost = lose(await scene.do(push(scene.lock)))
            async with world.stack() as (_, push_other, close_other):
                held = await scene.do(push_other(scene.lock))

                with pytest.raises(LockLostError):
                    await scene.do(close())

                assert is_inside(held)
                await scene.do(close_other())
                assert held._claim.state is ENDED
        assert lost._claim.lost_reason == "test"
        assert scene.lock._blocks == {}

    run(test)


def test_lock_entered_between_look_ups_does_not_get_the_exit(world: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            others.append(getattr(base, world.enter)(inner))
            return getattr(super(kind, lock), world.enter)()

        base = world.module.RedisLock
        kind = type("Own", (base,), {world.enter: enter})
        others: list[Any] = []
        scene, inner = Scene(world, kind), Scene(world, kind).lock
        async with world.stack() as (_, push, close):
            lease = await scene.do(push(scene.lock))
            other = await scene.do(others[0])

            await scene.do(close())

            assert lease._claim.state is ENDED
            assert is_inside(other)

    run(test)


def test_subclass_with_its_own_methods_releases(world: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            return getattr(super(kind, lock), world.enter)()

        def leave(lock: Any, *failure: object) -> Any:
            return getattr(super(kind, lock), world.exit)(*failure)

        kind = type("Own", (world.module.RedisLock,), {world.enter: enter, world.exit: leave})
        scene = Scene(world, kind)
        async with world.held(scene.lock) as lease:
            gc.collect()
            assert is_inside(lease)
        assert lease._claim.state is ENDED
        assert scene.lock._blocks == {}

    run(test)


def test_stored_methods_called_repeatedly_belong_to_no_block(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        enter, leave = getattr(scene.lock, world.enter), getattr(scene.lock, world.exit)
        first = lose(await scene.do(enter()))
        second = await scene.do(enter())  # like another thread, while the first one is in its block

        with pytest.raises(LockError, match="2 blocks"):
            await scene.do(leave(None, None, None))
        for lease in (first, second):
            assert lease._block is None
        third = await scene.do(enter())
        await scene.do(leave(None, None, None))

        assert third._claim.state is ENDED

    run(test)


def test_stored_exit_does_not_use_another_block(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        kept = getattr(scene.lock, world.exit)
        async with world.held(scene.lock) as first:
            assert is_inside(first)
        assert first._claim.state is ENDED
        second = await scene.enter()
        gc.collect()
        assert is_inside(second)
        await scene.do(kept(None, None, None))
        assert second._claim.state is ENDED

    run(test)


def test_block_between_the_look_ups_of_another_does_not_use_it(world: Any) -> None:
    """For instance the block of a signal handler or of a finalizer."""

    async def test() -> None:
        scene = Scene(world)
        enter, leave = getattr(scene.lock, world.enter), getattr(scene.lock, world.exit)
        async with world.held(scene.lock) as between:
            pass
        lease = await scene.do(enter())
        other = lose(await scene.enter())

        await scene.do(leave(None, None, None))

        assert between._claim.state is ENDED
        assert lease._claim.state is ENDED
        assert list(scene.lock._blocks) == [other]

    run(test)


def test_methods_that_were_only_looked_up_hold_nothing(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        for name in (world.exit, world.enter, world.exit):
            assert callable(getattr(scene.lock, name))
            assert callable(getattr(type(scene.lock), name))

        lease = await scene.enter()

        assert scene.lock._blocks == {lease: None}
        await scene.leave()
        assert lease._claim.state is ENDED

    run(test)


def test_forked_child_leaves_the_block_that_it_has_entered(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        parents = await scene.enter()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fork, "number", fork.number + 1)
            own = await scene.enter()

            await scene.leave()

            assert own._claim.state is ENDED
            assert scene.lock._blocks == {parents: None}
            with pytest.raises(LockNotOwnedError):  # its copy of its parent's
                await scene.leave()
        assert parents._claim.state is not ENDED

    run(test)


# Subclasses that let other code run between the two look-ups of a block


def own_kind(world: Any, enter: Any = None, leave: Any = None) -> Any:
    """Create a subclass with its own methods, from functions of a class and a lock."""
    methods: dict[str, Any] = {}
    if enter is not None:
        methods[world.enter] = lambda lock: enter(super(kind, lock))
    if leave is not None:
        methods[world.exit] = lambda lock, *failure: leave(super(kind, lock), *failure)
    kind = type("Own", (world.module.RedisLock,), methods)
    return kind


async def enter_late(ours: Any) -> Any:
    for _ in range(3):
        await asyncio.sleep(0)
    return await ours.__aenter__()


async def enter_at_once(ours: Any) -> Any:
    return await ours.__aenter__()


async def leave_late(ours: Any, *failure: object) -> Any:
    leaving = ours.__aexit__(*failure)
    for _ in range(3):
        await asyncio.sleep(0)
    return await leaving


async def leave_at_once(ours: Any, *failure: object) -> Any:
    return await ours.__aexit__(*failure)


@pytest.mark.parametrize("enter", [enter_at_once, enter_late])
@pytest.mark.parametrize("leave", [None, leave_at_once, leave_late])
def test_tasks_pair_their_own_look_ups(
    enter: Any, leave: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task enters while another one is between its look-ups, or leaves."""
    ended: list[list[bool]] = []

    async def use(lock: Any, steps: int, leases: list[Any]) -> None:
        async with lock as lease:
            leases.append(lease)
            for _ in range(steps):
                await asyncio.sleep(0)
            assert is_inside(lease), "another has left this block"
        ended.append([one._claim.state is ENDED for one in leases])

    async def test(first_steps: int) -> None:
        lock = Scene(Asyncio, own_kind(Asyncio, enter, leave)).lock
        leases: list[Any] = []
        first = asyncio.ensure_future(use(lock, 2, leases))
        for _ in range(first_steps):
            await asyncio.sleep(0)
        await asyncio.gather(first, use(lock, 9, leases))

        assert [one._claim.state is ENDED for one in leases] == [True, True]
        assert ended[0] in ([True], [True, False])
        assert lock._blocks == {}

    use_servers_of_their_own(Asyncio, monkeypatch)
    for first_steps in range(9):
        ended.clear()
        asyncio.run(test(first_steps))


def test_block_entered_during_another_exit_does_not_get_that_exit(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance the block of a signal handler that runs during the release."""

    async def test() -> None:
        kind = own_kind(
            world,
            lambda ours: getattr(ours, world.enter)(),
            lambda ours, *failure: getattr(ours, world.exit)(*failure),
        )
        scene = Scene(world, kind)
        name = "_leave" if world is Blocking else world.exit
        leave, others = getattr(world.leases.Lease, name), [world.dependency(scene.lock)]
        held: list[Any] = []

        def begin_other(lease: Any, *failure: object) -> Any:
            if others:
                held.append(getattr(others.pop(), world.enter)())
            return leave(lease, *failure)

        async def begin_other_first(lease: Any, *failure: object) -> Any:
            if others:
                held.append(await others.pop().__aenter__())
            return await leave(lease, *failure)

        between = begin_other if world is Blocking else begin_other_first
        monkeypatch.setattr(world.leases.Lease, name, between)
        other = others[0]
        async with world.held(scene.lock) as lease:
            pass

        assert lease._claim.state is ENDED
        assert is_inside(held[0])
        await scene.do(getattr(other, world.exit)(None, None, None))
        assert held[0]._claim.state is ENDED
        assert scene.lock._blocks == {}

    run(test)


# Exits that are never run


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
def test_lease_is_abandoned_if_its_exit_is_interrupted_at_once(world: Any) -> None:
    scene = Scene(world)
    leases: list[Any] = []

    def block() -> None:
        with scene.lock as lease:
            leases.append(lease)

    async def async_block() -> None:
        async with scene.lock as lease:
            leases.append(lease)

    with interrupted_at_the_entry_of(world.module.RedisLock._leave):
        if world is Blocking:
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


# Exits that are called directly


def test_direct_exit_releases_the_only_lease_of_this_context(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
        here = await scene.lost()
        context = contextvars.Context()
        there = await enter_in(context, scene)

        with pytest.raises(LockLostError):
            await scene.leave()

        assert is_inside(there)
        assert here._claim.lost_reason == "test"

    async def enter_in(context: contextvars.Context, scene: Any) -> Any:
        if world is Blocking:
            return context.run(scene.lock.__enter__)
        return elsewhere(context, scene.lock.__aenter__())

    run(test)


def test_direct_exit_of_one_of_two_blocks_is_refused(world: Any) -> None:
    """A thread of a pool enters many blocks, and leaves those of other threads."""

    async def test() -> None:
        scene = Scene(world)
        await scene.lost()
        held = await scene.enter()

        with pytest.raises(LockError, match="2 blocks"):
            await scene.leave()

        assert is_inside(held)

    run(test)


def test_lock_works_after_an_ambiguous_exit(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
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


def test_loss_of_a_block_with_an_ambiguous_exit_is_reported(world: Any) -> None:
    async def test() -> None:
        scene = Scene(world)
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


def test_threads_pair_their_own_look_ups() -> None:
    lock = redislock.RedisLock("a", client=redis.Redis())
    mine = lock.__enter__
    theirs: list[Any] = []
    thread = threading.Thread(target=lambda: theirs.append(lock.__exit__))
    thread.start()
    thread.join()
    ours = lock.__exit__

    def block_of(method: Any) -> Any:
        found = method.args[1]
        return found() if isinstance(found, weakref.ref) else found

    assert block_of(mine) is block_of(ours)
    assert block_of(mine) is not block_of(theirs[0])


# Code that runs in between: a signal handler, a finalizer


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

    def unheld(plan: Any, lock_names: tuple[str, ...]) -> Any:
        claim = claim_for(lock_names, plan.options, Blocking.leases.running())
        return Blocking.leases.Lease(claim, port, plan.options)

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
