"""A block of a subclass of redis-py's ``Lock`` releases only what it has acquired."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)


from support.redispy_scenes import KEY, Scene, Tasks, Threads, own_api, run

from redis_lock_decorators import ConfigurationError, LockError, LockNotOwnedError
from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._shared.redispy_tokens import TokenHold


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(request.param, monkeypatch)


def test_methods_of_a_subclass_are_called(scene: Scene) -> None:
    async def test() -> None:
        def acquire(one: Any, *arguments: Any, **options: Any) -> Any:
            called.append("acquire")
            return scene.api.kind.acquire(one, *arguments, **options)

        def release(one: Any) -> Any:
            called.append("release")
            return scene.api.kind.release(one)

        called: list[str] = []
        own = type("Own", (scene.api.kind,), {"acquire": acquire, "release": release})
        block = scene.api.block(own(scene.api.client, KEY, timeout=10))
        await scene.enter(block)
        assert scene.holder() is not None
        await scene.leave(block)

        assert called == ["acquire", "release"]
        assert scene.holder() is None

    run(test)


@pytest.mark.parametrize("step", ["do_acquire", "do_release", "do_extend", "do_reacquire"])
def test_subclass_whose_step_would_never_be_called_is_refused(scene: Scene, step: str) -> None:
    mixin = type("Mixin", (), {step: lambda *arguments: True})

    for parts in ((scene.api.kind,), (mixin, scene.api.kind)):
        with pytest.raises(ConfigurationError, match=f"{step} .*override {step[3:]} instead"):
            type("Own", parts, dict(vars(mixin)) if len(parts) == 1 else {})


def fails(acquired: bool) -> bool:
    raise ValueError(acquired)


@pytest.mark.parametrize(
    ("gives", "error"),
    [(fails, ValueError), (lambda acquired: None, LockError)],
    ids=["fails", "no"],
)
@pytest.mark.parametrize("shared", [True, False])
def test_failing_acquire_of_a_subclass_leaves_nothing_held(
    scene: Scene, gives: Any, error: Any, shared: bool
) -> None:
    async def test() -> None:
        scene.api = own_api(scene.api, acquire=then(scene.api, gives))
        scene.lock = scene.make(auto_renew=True, thread_local=not shared)

        with pytest.raises(error):
            await scene.enter(scene.api.block(scene.lock))

        assert scene.holder() is None
        assert scene.lock.local._slot().hold is None

    run(test)


def test_failing_acquire_of_a_subclass_does_not_release_another_hold(scene: Scene) -> None:
    async def test() -> None:
        def refused(acquired: bool) -> bool:
            slot = scene.lock.local._slot()
            other = TokenHold(claim_on(KEY, 10))
            others.append(other)
            slot.put(other)  # as another thread or task does that acquires it next
            raise ValueError(acquired)

        scene.api = own_api(scene.api, acquire=then(scene.api, refused))
        scene.lock = scene.make()
        with pytest.raises(ValueError, match="True"):
            await scene.enter(scene.api.block(scene.lock))

        assert scene.lock.local._slot().hold is others[0]

    others: list[TokenHold] = []
    run(test)


def test_lock_remains_held_if_a_subclass_fails_to_enter_it_again(scene: Scene) -> None:
    async def test() -> None:
        held = await scene.acquire()
        scene.patch(scene.api.kind, "_has_own", lambda one, method: method == "acquire")
        scene.patch(scene.api.kind, "acquire", failing)
        with pytest.raises(ValueError, match="held"):
            await scene.enter(scene.api.block(scene.lock))

        assert scene.is_inside(held)

    def failing(one: Any) -> Any:
        blocking = scene.api is Threads
        return fails_now() if blocking else fails_later()

    def fails_now() -> None:
        raise ValueError("held")

    async def fails_later() -> None:
        fails_now()

    run(test)


def then(api: Any, gives: Any) -> Any:
    """A method that acquires the lock, but returns another value than True or False."""
    kind = api.kind

    async def acquire_async(one: Any) -> Any:
        return gives(await kind.acquire(one))

    return (lambda one: gives(kind.acquire(one))) if api is Threads else acquire_async


def test_release_of_a_subclass_does_not_release_another_hold(scene: Scene) -> None:
    async def test() -> None:
        def release(one: Any) -> Any:
            called.append(one.local._slot().hold)
            return kind.release(one)

        kind, called = scene.api.kind, []  # type: ignore[var-annotated]
        scene.api = own_api(scene.api, release=release)
        scene.lock = scene.make()
        one, two = scene.api.block(scene.lock), scene.api.block(scene.lock)
        await scene.enter(one)
        scene.free()
        await scene.enter(two)
        held = scene.lock.local._slot().hold

        with pytest.raises(LockNotOwnedError):
            await scene.leave(one)

        assert scene.is_inside(held)
        await scene.leave(two)
        assert called == [held, held]  # what it finds in the slot is not what it releases
        assert scene.holder() is None

    run(test)


def test_release_of_a_subclass_that_comes_late_does_not_release_another_hold(scene: Scene) -> None:
    """The lease ends while the method does something else, and another block begins."""

    async def test() -> None:
        async def release_later(one: Any) -> None:
            if not others:
                others.append(other_block())
                await scene.enter(others[0])
            await kind.release(one)

        def release_now(one: Any) -> None:
            if not others:
                others.append(other_block())
                others[0].__enter__()
            kind.release(one)

        def other_block() -> Any:
            scene.free()
            return scene.api.block(scene.lock)

        kind, others = scene.api.kind, []  # type: ignore[var-annotated]
        method = release_now if scene.api is Threads else release_later
        scene.api = own_api(scene.api, release=method)
        scene.lock = scene.make()
        one = scene.api.block(scene.lock)
        await scene.enter(one)

        with pytest.raises(LockNotOwnedError):
            await scene.leave(one)

        assert scene.is_inside(scene.lock.local._slot().hold)
        await scene.leave(others[0])
        assert scene.holder() is None

    run(test)


def test_release_of_a_subclass_is_called_if_nothing_is_held(scene: Scene) -> None:
    """It may ignore that the lock was released in the block."""

    async def test() -> None:
        def release(one: Any) -> Any:
            called.append(one)
            return kind.release(one) if len(called) == 1 else scene.done()

        kind, called = scene.api.kind, []  # type: ignore[var-annotated]
        scene.api = own_api(scene.api, release=release)
        scene.lock = scene.make()
        block = scene.api.block(scene.lock)
        await scene.enter(block)
        await scene.do(scene.lock.release())

        await scene.leave(block)

        assert called == [scene.lock] * 2

    run(test)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("shared", [True, False])
def test_inner_block_that_acquires_nothing_leaves_the_lock_to_the_outer_one(
    scene: Scene, error: type[BaseException] | None, shared: bool
) -> None:
    async def test() -> None:
        def acquire(one: Any) -> Any:
            entered.append(one)
            return kind.acquire(one) if len(entered) == 1 else scene.done(True)

        def release(one: Any) -> Any:
            entered.pop()
            if entered and error is not None:
                raise error
            return scene.done() if entered else kind.release(one)

        kind, entered = scene.api.kind, []  # type: ignore[var-annotated]
        scene.api = own_api(scene.api, acquire=acquire, release=release)
        scene.lock = scene.make(thread_local=not shared)
        outer, inner = scene.api.block(scene.lock), scene.api.block(scene.lock)
        await scene.enter(outer)
        held = scene.lock.local._slot().hold
        await scene.enter(inner)

        with pytest.raises(error) if error else contextlib.nullcontext():
            await scene.leave(inner)

        assert scene.is_inside(held)
        assert held._block is not None  # an interrupted exit of the outer one releases it
        await scene.leave(outer)
        assert scene.holder() is None

    run(test)


def test_block_that_acquires_nothing_does_not_release_another_hold(scene: Scene) -> None:
    """The subclass lets its blocks be entered without the lock."""

    async def test() -> None:
        scene.api = own_api(scene.api, acquire=lambda one: scene.done(True))
        other, scene.lock = scene.lock, scene.make()
        scene.lock.local = other.local
        block = scene.api.block(scene.lock)
        await scene.enter(block)
        holder = scene.api.block(other)
        await scene.enter(holder)

        with pytest.raises(LockError):
            await scene.leave(block)

        assert scene.is_inside(other.local._slot().hold)
        await scene.leave(holder)
        assert scene.holder() is None


def test_block_that_acquires_nothing_releases_what_its_body_has_acquired(scene: Scene) -> None:
    """The subclass acquires only if it does not hold the lock yet."""

    async def test() -> None:
        scene.api = own_api(scene.api, acquire=lambda one: scene.done(True))
        base = scene.lock
        scene.lock = scene.make()
        scene.lock.local = base.local
        block = scene.api.block(scene.lock)
        await scene.enter(block)
        assert await scene.do(base.acquire())

        await scene.leave(block)

        assert scene.holder() is None

    run(test)
