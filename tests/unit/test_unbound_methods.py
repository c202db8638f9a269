"""Unbound methods of blocks that are looked up once and called for several locks."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support import redispy_scenes
from support.block_scenes import APIS, Scene, is_inside, run, use_separate_servers

from redis_lock_decorators import RedisLock
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators.lock import Lock

NONE = (None, None, None)


@pytest.fixture(params=APIS, ids=["threads", "tasks"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_separate_servers(request.param, monkeypatch)
    return request.param


def unbound(api: Any, kind: Any) -> tuple[Any, Any]:
    """Look up both methods on a class."""
    return getattr(kind, api.enter), getattr(kind, api.exit)


def aliased(api: Any) -> Any:
    """Return a subclass that has the methods of its base under their names."""
    enter, leave = unbound(api, api.module.RedisLock)
    return type("Own", (api.module.RedisLock,), {api.enter: enter, api.exit: leave})


def test_unbound_methods_of_threads_have_their_names() -> None:
    for kind in (RedisLock, Lock):
        for name in ("__enter__", "__exit__"):
            assert getattr(kind, name).__name__ == name


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_stored_methods_leave_the_blocks_of_several_locks(api: Any, order: Any) -> None:
    async def test() -> None:
        locks = [Scene(api).lock for _ in order]
        enter, leave = unbound(api, api.module.RedisLock)
        leases = [await api.do(enter(lock)) for lock in locks]
        gc.collect()
        for number in order:
            assert is_inside(leases[number])
            await api.do(leave(locks[number], *NONE))
            gc.collect()
            assert leases[number]._claim.state is ENDED

        assert [lock._blocks for lock in locks] == [{}] * 3

    run(test)


def test_stored_exit_of_another_lock_leaves_an_entered_block_alone(api: Any) -> None:
    async def test() -> None:
        mine, other = Scene(api).lock, Scene(api)
        enter, leave = unbound(api, api.module.RedisLock)
        lease, others = await api.do(enter(mine)), await other.enter()

        await api.do(leave(other.lock, *NONE))
        gc.collect()

        assert others._claim.state is ENDED
        assert is_inside(lease)
        await api.do(leave(mine, *NONE))
        assert lease._claim.state is ENDED

    run(test)


def test_stored_exit_that_is_called_first_leaves_a_later_block_alone(api: Any) -> None:
    async def test() -> None:
        mine, other = Scene(api).lock, Scene(api)
        enter, leave = unbound(api, api.module.RedisLock)
        await other.enter()
        await api.do(leave(other.lock, *NONE))

        lease = await api.do(enter(mine))
        gc.collect()

        assert is_inside(lease)
        await api.do(leave(mine, *NONE))
        assert lease._claim.state is ENDED

    run(test)


@pytest.mark.parametrize("is_left", [False, True])
def test_stored_methods_are_called_while_the_first_lock_is_acquired(
    api: Any, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """As by another thread or task."""

    async def test() -> None:
        mine, other = Scene(api).lock, Scene(api).lock
        enter, leave = unbound(api, api.module.RedisLock)
        kind, others = api.leases.Lease, []
        acquire = kind._acquire

        async def meanwhile() -> None:
            monkeypatch.setattr(kind, "_acquire", acquire)
            others.append(await api.do(enter(other)))
            if is_left:
                await api.do(leave(other, *NONE))

        async def later(lease: Any, wait: float) -> Any:
            await meanwhile()
            return await acquire(lease, wait)

        def immediately(lease: Any, wait: float) -> Any:
            with pytest.raises(StopIteration):
                meanwhile().send(None)
            return acquire(lease, wait)

        is_async = api.enter == "__aenter__"
        monkeypatch.setattr(kind, "_acquire", later if is_async else immediately)
        lease = await api.do(enter(mine))
        gc.collect()

        assert is_inside(lease)
        assert is_inside(others[0]) is not is_left
        for lock in (mine,) if is_left else (other, mine):
            await api.do(leave(lock, *NONE))
        assert lease._claim.state is others[0]._claim.state is ENDED

    run(test)


def test_methods_stored_in_a_subclass_serve_all_its_locks(api: Any) -> None:
    async def test() -> None:
        kind = aliased(api)
        first, second = Scene(api, kind).lock, Scene(api, kind).lock
        for _ in range(3):
            async with api.held(first) as lease, api.held(second) as inner:
                gc.collect()
                assert is_inside(lease)
                assert is_inside(inner)
            assert lease._claim.state is inner._claim.state is ENDED
        assert first._blocks == second._blocks == {}

    run(test)


@pytest.mark.parametrize("redispy_api", [redispy_scenes.Threads, redispy_scenes.Tasks])
@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
@pytest.mark.parametrize("is_entered", [True, False])
def test_stored_methods_leave_the_blocks_of_several_redispy_locks(
    redispy_api: Any, order: Any, is_entered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        scene = redispy_scenes.Scene(redispy_api, monkeypatch)
        locks = [scene.api.kind(scene.api.client, name, timeout=10) for name in (b"a", b"b")]
        enter, leave = unbound(scene.api, scene.api.kind)
        await scene.do(enter(locks[0]))
        await scene.do(enter(locks[1]) if is_entered else locks[1].acquire())

        for number in order:
            gc.collect()
            assert scene.server.value(locks[number].name) is not None
            assert locks[number].local._slot().hold._block is None or not is_entered
            await scene.do(leave(locks[number], *NONE))
            assert scene.server.value(locks[number].name) is None

    run(test)
