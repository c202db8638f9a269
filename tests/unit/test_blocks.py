"""Each block releases what it has entered, in any thread or task.

The tests mark a lease as lost by hand, so that another thread or task can enter a block of the same
lock object.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)


from support.block_scenes import APIS, Scene, is_inside, lose, run, use_separate_servers

from redis_lock_decorators import LockError, LockLostError, LockNotOwnedError
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim_state import ENDED


@pytest.fixture(params=APIS, ids=["threads", "tasks"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    use_separate_servers(request.param, monkeypatch)
    return request.param


def test_generator_block_releases_its_own_lease(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        enter, leave = api.enter, api.exit
        one, two = api.dependency(scene.lock), api.dependency(scene.lock)
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


def test_exit_stack_releases_its_own_lease(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        async with api.stack() as (_, push, close):
            lose(await scene.do(push(scene.lock)))
            held = await scene.enter()

            with pytest.raises(LockLostError):
                await scene.do(close())

            assert is_inside(held)
            await scene.leave()
            assert held._claim.state is ENDED
            assert scene.lock._blocks == {}

    run(test)


def test_block_inside_a_lost_block_releases_its_own_lease(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        with pytest.raises(LockLostError):
            async with api.held(scene.lock) as outer:
                lose(outer)
                async with api.held(scene.lock) as inner:
                    pass
                assert inner._claim.state is ENDED
                assert outer._claim.state is not ENDED

    run(test)


def test_block_of_a_subclass_with_its_own_enter_has_its_own_exit(api: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            entered.append(lock)
            return getattr(super(kind, lock), api.enter)()

        kind = type("Own", (api.module.RedisLock,), {api.enter: enter})
        entered: list[Any] = []
        scene = Scene(api, kind)
        one, two = api.dependency(scene.lock), api.dependency(scene.lock)
        lose(await scene.do(getattr(one, api.enter)()))
        held = await scene.do(getattr(two, api.enter)())

        with pytest.raises(LockLostError):
            await scene.do(getattr(one, api.exit)(None, None, None))

        assert is_inside(held)
        await scene.do(getattr(two, api.exit)(None, None, None))
        assert entered == [scene.lock] * 2

    run(test)


@pytest.mark.parametrize("by_class", [False, True], ids=["super", "base"])
def test_exit_stack_releases_what_a_subclass_has_entered(api: Any, by_class: bool) -> None:
    """The stack looks up the exit at the class; the subclass looks up ours at the lock."""

    async def test() -> None:
        def enter(lock: Any) -> Any:
            place, first = (base, (lock,)) if by_class else (super(kind, lock), ())
            return getattr(place, api.enter)(*first)

        base = api.module.RedisLock
        kind = type("Own", (base,), {api.enter: enter})
        scene = Scene(api, kind)
        async with api.stack() as (_, push, close):
            lost = lose(await scene.do(push(scene.lock)))
            async with api.stack() as (_, push_other, close_other):
                held = await scene.do(push_other(scene.lock))

                with pytest.raises(LockLostError):
                    await scene.do(close())

                assert is_inside(held)
                await scene.do(close_other())
                assert held._claim.state is ENDED
        assert lost._claim.lost_reason == "test"
        assert scene.lock._blocks == {}

    run(test)


def test_lock_entered_between_look_ups_does_not_use_the_exit(api: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            others.append(getattr(base, api.enter)(inner))
            return getattr(super(kind, lock), api.enter)()

        base = api.module.RedisLock
        kind = type("Own", (base,), {api.enter: enter})
        others: list[Any] = []
        scene, inner = Scene(api, kind), Scene(api, kind).lock
        async with api.stack() as (_, push, close):
            lease = await scene.do(push(scene.lock))
            other = await scene.do(others[0])

            await scene.do(close())

            assert lease._claim.state is ENDED
            assert is_inside(other)

    run(test)


def test_subclass_with_its_own_methods_releases(api: Any) -> None:
    async def test() -> None:
        def enter(lock: Any) -> Any:
            return getattr(super(kind, lock), api.enter)()

        def leave(lock: Any, *failure: object) -> Any:
            return getattr(super(kind, lock), api.exit)(*failure)

        kind = type("Own", (api.module.RedisLock,), {api.enter: enter, api.exit: leave})
        scene = Scene(api, kind)
        async with api.held(scene.lock) as lease:
            gc.collect()
            assert is_inside(lease)
        assert lease._claim.state is ENDED
        assert scene.lock._blocks == {}

    run(test)


def test_stored_methods_called_repeatedly_belong_to_no_block(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        enter, leave = getattr(scene.lock, api.enter), getattr(scene.lock, api.exit)
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


def test_stored_exit_does_not_use_another_block(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        kept = getattr(scene.lock, api.exit)
        async with api.held(scene.lock) as first:
            assert is_inside(first)
        assert first._claim.state is ENDED
        second = await scene.enter()
        gc.collect()
        assert is_inside(second)
        await scene.do(kept(None, None, None))
        assert second._claim.state is ENDED

    run(test)


def test_block_between_the_look_ups_of_another_does_not_use_it(api: Any) -> None:
    """For instance the block of a signal handler or of a finalizer."""

    async def test() -> None:
        scene = Scene(api)
        enter, leave = getattr(scene.lock, api.enter), getattr(scene.lock, api.exit)
        async with api.held(scene.lock) as between:
            pass
        lease = await scene.do(enter())
        other = lose(await scene.enter())

        await scene.do(leave(None, None, None))

        assert between._claim.state is ENDED
        assert lease._claim.state is ENDED
        assert list(scene.lock._blocks) == [other]

    run(test)


def test_methods_that_were_only_looked_up_hold_nothing(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        for name in (api.exit, api.enter, api.exit):
            assert callable(getattr(scene.lock, name))
            assert callable(getattr(type(scene.lock), name))

        lease = await scene.enter()

        assert scene.lock._blocks == {lease: None}
        await scene.leave()
        assert lease._claim.state is ENDED

    run(test)


def test_forked_child_leaves_the_block_that_it_has_entered(api: Any) -> None:
    async def test() -> None:
        scene = Scene(api)
        parents = await scene.enter()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fork, "process_id", fork.process_id + 1)
            own = await scene.enter()

            await scene.leave()

            assert own._claim.state is ENDED
            assert scene.lock._blocks == {parents: None}
            with pytest.raises(LockNotOwnedError):  # its copy of its parent's
                await scene.leave()
        assert parents._claim.state is not ENDED

    run(test)
