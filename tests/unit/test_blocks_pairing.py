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
    APIS,
    Asyncio,
    Blocking,
    Scene,
    is_inside,
    run,
    use_separate_servers,
)

from redis_lock_decorators import redislock
from redis_lock_decorators._flow.claim_state import ENDED


@pytest.fixture(params=APIS, ids=["threads", "tasks"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_separate_servers(request.param, monkeypatch)
    return request.param


# Subclasses that let other code run between the two look-ups of a block


def own_kind(api: Any, enter: Any = None, leave: Any = None) -> Any:
    """Create a subclass with its own methods, from functions of a class and a lock."""
    methods: dict[str, Any] = {}
    if enter is not None:
        methods[api.enter] = lambda lock: enter(super(kind, lock))
    if leave is not None:
        methods[api.exit] = lambda lock, *failure: leave(super(kind, lock), *failure)
    kind = type("Own", (api.module.RedisLock,), methods)
    return kind


async def enter_late(ours: Any) -> Any:
    for _ in range(3):
        await asyncio.sleep(0)
    return await ours.__aenter__()


async def enter_immediately(ours: Any) -> Any:
    return await ours.__aenter__()


async def leave_late(ours: Any, *failure: object) -> Any:
    leaving = ours.__aexit__(*failure)
    for _ in range(3):
        await asyncio.sleep(0)
    return await leaving


async def leave_immediately(ours: Any, *failure: object) -> Any:
    return await ours.__aexit__(*failure)


@pytest.mark.parametrize("enter", [enter_immediately, enter_late])
@pytest.mark.parametrize("leave", [None, leave_immediately, leave_late])
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

    use_separate_servers(Asyncio, monkeypatch)
    for first_steps in range(9):
        ended.clear()
        asyncio.run(test(first_steps))


def test_block_entered_during_another_exit_does_not_get_that_exit(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance the block of a signal handler that runs during the release."""

    async def test() -> None:
        kind = own_kind(
            api,
            lambda ours: getattr(ours, api.enter)(),
            lambda ours, *failure: getattr(ours, api.exit)(*failure),
        )
        scene = Scene(api, kind)
        name = "_leave" if api is Blocking else api.exit
        leave, others = getattr(api.leases.Lease, name), [api.dependency(scene.lock)]
        held: list[Any] = []

        def begin_other(lease: Any, *failure: object) -> Any:
            if others:
                held.append(getattr(others.pop(), api.enter)())
            return leave(lease, *failure)

        async def begin_other_first(lease: Any, *failure: object) -> Any:
            if others:
                held.append(await others.pop().__aenter__())
            return await leave(lease, *failure)

        between = begin_other if api is Blocking else begin_other_first
        monkeypatch.setattr(api.leases.Lease, name, between)
        other = others[0]
        async with api.held(scene.lock) as lease:
            pass

        assert lease._claim.state is ENDED
        assert is_inside(held[0])
        await scene.do(getattr(other, api.exit)(None, None, None))
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
