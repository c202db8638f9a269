"""A lease is renewed no longer once no code can release it, so that it expires."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any
from weakref import ref

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.collected import FORMS, begun, collect_in_cycle, no_unraisable
from support.collected_scene import KEY, Scene

from redis_lock_decorators._flow.renewal.ownership import has_owner


@pytest.fixture(autouse=True)
def _collected_only_by_the_test() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def drop_lease(scene: Scene) -> Callable[[], object]:
    held = [scene.lock().acquire()]
    return held.clear


def drop_lease_in_a_cycle(scene: Scene) -> Callable[[], object]:
    held: list[Any] = [scene.lock().acquire()]
    return lambda: collect_in_cycle(held)


def drop_methods(scene: Scene) -> Callable[[], object]:
    lock = scene.lock()
    methods = [lock.__enter__, lock.__exit__]
    methods[0]()
    return methods.clear


def drop_methods_of_a_kept_lease(scene: Scene) -> Callable[[], object]:
    lock = scene.lock()
    methods = [lock.__enter__, lock.__exit__]
    kept = methods[0]()
    return lambda: methods.clear() or kept


def drop_methods_in_a_cycle(scene: Scene) -> Callable[[], object]:
    lock = scene.lock()
    methods = [lock.__enter__, lock.__exit__]
    kept, boxes = methods[0](), [methods]
    del methods
    return lambda: collect_in_cycle(boxes) or kept


def drop_drop_in(scene: Scene) -> Callable[[], object]:
    locks = [scene.drop_in(thread_local=True)]
    locks[0].acquire()
    return locks.clear


def drop_methods_of_a_drop_in(scene: Scene) -> Callable[[], object]:
    lock = scene.drop_in(thread_local=True)
    methods = [lock.__enter__, lock.__exit__]
    methods[0]()
    return lambda: methods.clear() or lock


@pytest.mark.parametrize(
    "prepare",
    [
        *(drop_lease, drop_lease_in_a_cycle, drop_methods, drop_methods_of_a_kept_lease),
        *(drop_methods_in_a_cycle, drop_drop_in, drop_methods_of_a_drop_in),
    ],
)
def test_lease_that_no_code_can_release_expires(scene: Scene, prepare: Any) -> None:
    drop = prepare(scene)
    scene.port.clock.advance(30)
    assert scene.is_held()

    kept = drop()
    gc.collect()
    scene.port.clock.advance(15)

    assert not scene.is_held()
    assert len(scene.lease_loop.renewer) == 0
    assert kept is None or kept


def test_lease_of_methods_called_repeatedly_is_renewed(scene: Scene) -> None:
    lock = scene.lock()
    enter, leave = lock.__enter__, lock.__exit__
    first = enter()
    scene.port.server.drop(KEY)
    first._claim.lost_reason = "test"
    second = enter()

    assert has_owner(first._tracked)
    scene.port.clock.advance(30)
    assert second.lost is False
    del enter, leave
    assert has_owner(second._tracked)
    second.release()
    assert not scene.is_held()


# What a loss is reported with


class Request:
    """An object of the program that holds its lease, or the generator that does."""

    held: object = None

    def on_lost(self, lease: Any, why: str) -> None:
        raise AssertionError

    def lock(self, scene: Scene, reports: str) -> Any:
        """Return a lock whose ``on_lost`` refers to this object, except if it is ``ignore``."""
        if reports == "method":
            return scene.lock(on_lost=self.on_lost)
        if reports == "closure":
            return scene.lock(on_lost=lambda lease, why: self.on_lost(lease, why))
        if reports == "default":
            return scene.lock(on_lost=lambda lease, why, own=self: own.on_lost(lease, why))
        if reports == "partial":
            return scene.lock(on_lost=functools.partial(Request.on_lost, self))
        return scene.lock(on_lost=ignore)

    def acquire(self, scene: Scene, reports: str) -> None:
        self.held = self.lock(scene, reports).acquire()

    def enter(self, scene: Scene, reports: str) -> None:
        self.held, _ = begun(FORMS[0](self.lock(scene, reports), list))


def ignore(lease: Any, why: str) -> None:
    pass


REQUEST: ContextVar[Request] = ContextVar("request")


def handle_request(scene: Scene, hold: Any, reports: str) -> Any:
    """Acquire a lock in a context that refers to the request; return a weak reference to that."""
    request = Request()
    REQUEST.set(request)
    hold(request, scene, reports)
    return ref(request)


@pytest.mark.parametrize("reports", ["context", "method", "closure", "default", "partial"])
@pytest.mark.parametrize("hold", [Request.acquire, Request.enter])
def test_lease_whose_on_lost_refers_to_it_is_not_kept(
    scene: Scene, hold: Any, reports: str
) -> None:
    request = copy_context().run(handle_request, scene, hold, reports)

    with no_unraisable():
        gc.collect()
    scene.port.clock.advance(15)

    assert request() is None
    assert not scene.is_held()
    assert len(scene.lease_loop.renewer) == 0


def test_released_lease_keeps_nothing_of_its_request(scene: Scene) -> None:
    def handle() -> Any:
        request = Request()
        REQUEST.set(request)
        lease = scene.lock().acquire()
        scene.port.clock.advance(4)  # the renewer has scheduled it
        lease.release()
        return ref(request)

    request = copy_context().run(handle)
    gc.collect()

    assert request() is None
