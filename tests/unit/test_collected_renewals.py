"""A lease is renewed until the generator that holds it ends, even if it is being collected.

The garbage collector clears the weak references of a cycle before it closes the generators in it.
Their own clean-up may last longer than the lease.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.collected import (
    ASYNC_FORMS,
    FORMS,
    LEASE_FORMS,
    async_block,
    async_context_manager,
    async_exit_stack,
    begun,
    by_hand,
    collect_in_cycle,
    finalized_generators,
    no_unraisable,
)
from support.collected_scene import ASYNC, BLOCKING, KEY, Scene

import redis_lock_decorators
from redis_lock_decorators import redis_lock

KEPT = ["nothing", "lock", "lease"]


class LosingScene(Scene):
    """A scene whose clean-up loses the lock."""

    def clean_up(self) -> None:
        self.port.server.drop(KEY)
        self.port.clock.advance(4)
        self.done.append("cleaned up")


@pytest.fixture(autouse=True)
def _collected_only_by_the_test() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def collect(generator: list[Any]) -> None:
    with no_unraisable():
        collect_in_cycle(generator)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("hold", [*FORMS, *LEASE_FORMS])
def test_lock_is_renewed_until_the_clean_up_ends(scene: Scene, hold: Any, kept: str) -> None:
    lock = scene.lock()
    generator, lease = begun(hold(lock, scene.clean_up))
    keeps = {"lock": lock, "lease": lease}.get(kept)
    del lock, lease

    collect(generator)

    assert scene.done == ["cleaned up"]
    assert not scene.is_held()
    assert keeps is None or kept in repr(type(keeps)).lower()


@pytest.mark.parametrize("thread_local", [True, False])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("hold", [*FORMS, by_hand])
def test_drop_in_is_renewed_until_the_clean_up_ends(
    scene: Scene, hold: Any, kept: bool, thread_local: bool
) -> None:
    lock = scene.drop_in(thread_local)
    generator, _ = begun(hold(lock, scene.clean_up))
    keeps = lock if kept else None
    del lock, _

    collect(generator)

    assert scene.done == ["cleaned up"]
    assert not scene.is_held()
    assert keeps is None or keeps.local.token is None


def decorated(scene: Scene) -> Any:
    @redis_lock("a", client=BLOCKING, expire=10, on_lost=scene.on_lost)
    def work() -> Generator[Any, None, None]:
        try:
            yield
        finally:
            scene.clean_up()

    return work()


def async_decorated(scene: Scene) -> Any:
    @redis_lock("a", client=ASYNC, expire=10, on_lost=scene.on_lost)
    async def work() -> AsyncGenerator[Any, None]:
        try:
            yield
        finally:
            scene.clean_up()

    return work()


def test_decorated_generator_is_renewed_until_it_ends(scene: Scene) -> None:
    generator, _ = begun(decorated(scene))

    collect(generator)

    assert scene.done == ["cleaned up"]
    assert not scene.is_held()


def test_decorated_async_generator_is_renewed_until_it_ends(scene: Scene) -> None:
    close_collected([async_decorated(scene)])

    assert scene.done == ["cleaned up"]
    assert not scene.is_held()


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("hold", ASYNC_FORMS)
def test_async_lock_is_renewed_until_the_clean_up_ends(scene: Scene, hold: Any, kept: str) -> None:
    lock = scene.async_lock()
    keeps = close_collected([hold(lock, scene.clean_up)], kept == "lease")
    assert scene.done == ["cleaned up"]
    assert not scene.is_held()
    assert keeps is None or kept == "lease"


@pytest.mark.parametrize("thread_local", [True, False])
@pytest.mark.parametrize("hold", [async_block, async_context_manager, async_exit_stack])
def test_async_drop_in_is_renewed_until_the_clean_up_ends(
    scene: Scene, hold: Any, thread_local: bool
) -> None:
    close_collected([hold(scene.async_drop_in(thread_local), scene.clean_up)])

    assert scene.done == ["cleaned up"]
    assert not scene.is_held()


def close_collected(generator: list[Any], keep: bool = False) -> Any:
    """Collect an async generator in a cycle; close it as its event loop would do later."""
    with finalized_generators() as found:
        held = finished(generator[0].__anext__())
        keeps = held if keep else None
        del held
        collect(generator)
        while found:
            finished(found.pop(0).aclose())
            gc.collect()
    return keeps


def finished(work: Any) -> Any:
    """Run an awaitable that need not wait, outside event loops."""
    with pytest.raises(StopIteration) as stop:
        work.send(None)
    return stop.value.value


# Losses


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("hold", [*FORMS, *LEASE_FORMS, "decorated"])
def test_loss_is_reported_during_the_clean_up(hold: Any, monkeypatch: Any) -> None:
    scene = LosingScene(monkeypatch)
    holds = decorated(scene) if hold == "decorated" else hold(scene.lock(), scene.clean_up)
    generator, _ = begun(holds)
    del holds, _

    collect_in_cycle(generator)

    assert scene.done == ["on_lost", "cleaned up"]


@pytest.mark.parametrize("hold", [*ASYNC_FORMS, "decorated"])
def test_loss_of_an_async_lock_is_reported_during_the_clean_up(hold: Any, monkeypatch: Any) -> None:
    scene = LosingScene(monkeypatch)
    if hold == "decorated":
        holds = async_decorated(scene)
    else:
        holds = hold(scene.async_lock(), scene.clean_up)
    generator = [holds]
    del holds

    with contextlib.suppress(redis_lock_decorators.LockLostError):
        close_collected(generator)

    assert scene.done == ["on_lost", "cleaned up"]
