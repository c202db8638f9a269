"""A lease is renewed until the generator that holds it ends, even if it is being collected.

The garbage collector clears the weak references of a cycle before it closes the generators in it.
Their own clean-up may last longer than the lease.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any
from weakref import ref

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
from support.renewers import new_lease_loop, renewals

import redis_lock_decorators.asyncio.lease
import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.asyncio.redislock
import redis_lock_decorators.lease
import redis_lock_decorators.lock
from redis_lock_decorators import redis_lock, redislock
from redis_lock_decorators._flow.renewal.ownership import has_owner
from redis_lock_decorators._shared.lease_base import claim_for

KEY = b"sys:lock:a"
BLOCKING, ASYNC = redis.Redis(), redis.asyncio.Redis()
KEPT = ["nothing", "lock", "lease"]


class Scene:
    """Locks on a simulated server, whose leases are renewed in virtual time.

    Attributes:
        done: what happened, in its order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lease_loop, self.port = new_lease_loop()
        self.done: list[str] = []
        port: Any = self.port
        port.lease_loop = SimpleNamespace(check=lambda claim: None, is_current=lambda: True)
        port.loop = SimpleNamespace(is_closed=lambda: False)
        monkeypatch.setattr(redis_lock_decorators.asyncio.lease, "is_running_here", lambda _: True)
        packages = redis_lock_decorators, redis_lock_decorators.asyncio
        for package in packages:
            lease: Any = package.lease

            def unheld(config: Any, names: Any, owner: object = None, lease: Any = lease) -> Any:
                claim = claim_for(names, config.options, owner or lease.running())
                return lease.Lease(claim, port, config.options)

            for module in (lease, package.redislock):
                monkeypatch.setattr(module, "unheld", unheld)
            monkeypatch.setattr(package.lock.Lock, "_port", lambda _: port)
        losses = SimpleNamespace(call=lambda function: function())
        monkeypatch.setattr(redis_lock_decorators.lease, "loss_threads", losses)

    def lock(self, **options: Any) -> Any:
        given = {"client": BLOCKING, "expire": 10, "on_lost": self.on_lost, **options}
        return redislock.RedisLock("a", **given)

    def async_lock(self, **options: Any) -> Any:
        given = {"client": ASYNC, "expire": 10, "on_lost": self.on_lost, **options}
        return redis_lock_decorators.asyncio.redislock.RedisLock("a", **given)

    def drop_in(self, thread_local: bool) -> Any:
        kind = redis_lock_decorators.lock.Lock
        return kind(BLOCKING, KEY, 10, auto_renew=True, thread_local=thread_local)

    def async_drop_in(self, thread_local: bool) -> Any:
        kind = redis_lock_decorators.asyncio.lock.Lock
        return kind(ASYNC, KEY, 10, auto_renew=True, thread_local=thread_local)

    def on_lost(self, lease: Any, why: str) -> None:
        assert lease.lost
        assert lease.key == KEY.decode()
        self.done.append("on_lost")

    def is_held(self) -> bool:
        return self.port.server.value(KEY) is not None

    def clean_up(self) -> None:
        """Work for three times as long as a lease lasts."""
        before = len(renewals(self.port))
        self.port.clock.advance(30)
        assert len(renewals(self.port)) >= before + 6
        assert self.is_held()
        self.done.append("cleaned up")


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


# The end of the renewal


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
