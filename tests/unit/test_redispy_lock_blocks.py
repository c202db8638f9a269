"""A block of redis-py's ``Lock`` releases what it has acquired, and nothing else."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)


from support.redispy_scenes import KEY, Scene, Tasks, Threads, own_api, run, running

from redis_lock_decorators import LockError, LockNotOwnedError
from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.renewal.ownership import has_owner
from redis_lock_decorators._shared.redispy_tokens import TokenHold


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(request.param, monkeypatch)


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
            await scene.enter(scene.api.block(scene.lock))

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

        block = scene.api.block(scene.lock)
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
        one, two = scene.api.block(scene.lock), scene.api.block(scene.lock)
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
        block = scene.api.block(scene.lock)
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

        kind = scene.api.kind
        if own:
            scene.api = own_api(scene.api, acquire=acquire)
            scene.lock = scene.make()
        one, two = scene.api.block(scene.lock), scene.api.block(scene.lock)
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
        early.is_gone, early._block = True, object()
        left: list[TokenHold | None] = []
        opening = scene.api.kind._open

        def opened(one: Any, *arguments: Any) -> None:
            left.append(one._hold_of(SimpleNamespace(held=early)))
            opening(one, *arguments)

        scene.patch(scene.api.kind, "_open", opened)
        await scene.enter(scene.api.block(scene.lock))

        assert left == [early]

    run(test)


def test_hold_reacquired_in_a_block_is_released_at_its_end(scene: Scene) -> None:
    async def test() -> None:
        block = scene.api.block(scene.lock)
        await scene.enter(block)
        await scene.do(scene.lock.release())
        await scene.acquire()

        await scene.leave(block)

        assert scene.holder() is None

    run(test)


def test_renewal_ends_if_a_block_is_collected_without_its_exit(scene: Scene) -> None:
    async def test() -> None:
        scene.lock = scene.make(auto_renew=True)
        enter, leave = [getattr(scene.lock, name) for name in (scene.api.enter, scene.api.exit)]
        await scene.do(enter())
        hold = scene.lock.local._slot().hold
        assert hold.renewal_handle is not None
        assert has_owner(hold.renewal_handle.tracked)

        del enter, leave
        gc.collect()

        assert not has_owner(hold.renewal_handle.tracked)
        await scene.do(scene.lock.release())
        assert scene.holder() is None

    run(test)


def test_methods_called_repeatedly_belong_to_no_block(scene: Scene) -> None:
    async def test() -> None:
        enter, leave = [getattr(scene.lock, name) for name in (scene.api.enter, scene.api.exit)]
        for _ in range(3):
            await scene.do(enter())
            assert scene.holder() is not None
            await scene.do(leave(None, None, None))
            assert scene.holder() is None

    run(test)
