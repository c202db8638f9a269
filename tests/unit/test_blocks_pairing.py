"""The two look-ups of a block belong together, whatever runs in between."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)


from support.block_scenes import (
    WORLDS,
    Asyncio,
    Blocking,
    Scene,
    is_inside,
    run,
    use_servers_of_their_own,
)

from redis_lock_decorators import redislock
from redis_lock_decorators._flow.claim_state import ENDED


@pytest.fixture(params=WORLDS, ids=["threads", "tasks"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_servers_of_their_own(request.param, monkeypatch)
    return request.param


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


# Exits that are called directly


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
