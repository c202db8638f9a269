"""A block whose exit ends before its first line, or has no room to release, lets its lock go."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import redis
from support.faults import Request, delivered
from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.lease
import redis_lock_decorators.lock
from redis_lock_decorators import redislock
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.lease_base import claim_for

KEY = b"sys:lock:a"
#: Before that a signal handler runs after the first line.
early = pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers run within the first try")
WAYS = ["block", "lease", "call", "drop-in", "endless drop-in"]


class Interrupted(Exception):
    """What a signal handler raises."""


class Scene:
    """A lock of threads on a simulated server, and the releases that other threads would make."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))
        self.beside: list[Callable[[], object]] = []
        releases = SimpleNamespace(call=self.beside.append)
        for module in (redis_lock_decorators.lease, redis_lock_decorators.lock):
            monkeypatch.setattr(module, "releases", releases)
        for module in (redis_lock_decorators.lease, redislock):
            monkeypatch.setattr(module, "unheld", self._unheld)
        monkeypatch.setattr(redis_lock_decorators.lock.Lock, "_port", lambda _: self.port)
        self.lock = redislock.RedisLock("a", client=redis.Redis(), auto_renew=False)

    def use(self, way: str, body: Callable[[], object] = lambda: None) -> None:
        """Hold the lock around a body."""
        if way == "call":
            self.lock.call(body)
            return
        with self._block(way):
            body()

    def is_held(self) -> bool:
        return self.port.server.value(KEY) is not None

    def release_beside(self) -> None:
        """What other threads are asked to release, on stacks of their own."""
        while self.beside:
            self.beside.pop()()

    def _block(self, way: str) -> Any:
        if way == "block":
            return self.lock
        if way == "lease":
            return self.lock.acquire()
        timeout = None if way == "endless drop-in" else 10
        return redis_lock_decorators.lock.Lock(redis.Redis(), KEY, timeout)

    def _unheld(self, plan: Any, lock_names: tuple[str, ...]) -> Any:
        claim = claim_for(lock_names, plan.options, redis_lock_decorators.lease.running())
        return redis_lock_decorators.lease.Lease(claim, self.port, plan.options)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


@contextlib.contextmanager
def interrupted(name: str) -> Iterator[None]:
    """Raise before the first line of the package's next function of this name."""

    def trace(frame: FrameType, event: str, argument: object) -> None:
        is_ours = "redis_lock_decorators" in frame.f_code.co_filename
        if event == "call" and is_ours and frame.f_code.co_name == name:
            sys.settrace(None)
            raise Interrupted

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@early
@pytest.mark.parametrize("way", WAYS)
def test_exit_that_is_interrupted_at_its_beginning_lets_go(scene: Scene, way: str) -> None:
    with pytest.raises(Interrupted) as kept, interrupted("_leave" if way != "call" else "__exit__"):
        scene.use(way)
    scene.release_beside()

    assert not scene.is_held()
    assert kept.tb is not None  # though somebody keeps the exception


@early
def test_drop_in_is_not_renewed_when_its_exit_was_interrupted(scene: Scene) -> None:
    one = redis_lock_decorators.lock.Lock(redis.Redis(), KEY, 10)
    with pytest.raises(Interrupted) as kept, interrupted("_leave"), one:
        pass
    scene.release_beside()

    assert one.local.token is None
    assert not scene.is_held()
    assert kept.value is not None


def test_exit_of_a_lease_that_is_only_looked_up_changes_nothing(scene: Scene) -> None:
    lease = scene.lock.acquire()
    assert lease is not None

    assert hasattr(lease, "__exit__")

    assert lease._block is None
    assert scene.beside == []
    assert scene.is_held()
    lease.check()


def test_lease_whose_exit_is_called_by_hand_is_let_go(scene: Scene) -> None:
    lease = scene.lock.acquire()
    assert lease is not None

    lease.__exit__(None, None, None)

    assert not scene.is_held()
    assert scene.beside == []


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
@pytest.mark.parametrize("way", WAYS)
def test_exit_without_room_to_release_has_another_thread_do_it(
    scene: Scene, way: str, error: type[Exception]
) -> None:
    def no_room(request: Request) -> Any:
        raise error

    def body() -> None:
        scene.port.usual = no_room

    with pytest.raises(error):
        scene.use(way, body)
    assert scene.is_held()

    scene.port.usual = delivered
    scene.release_beside()

    assert not scene.is_held()


@pytest.mark.parametrize("way", WAYS)
def test_entry_without_room_to_undo_has_another_thread_do_it(scene: Scene, way: str) -> None:
    def no_room_after(request: Request) -> Any:
        if not scene.is_held():
            request.execute()
        raise RecursionError

    scene.port.usual = no_room_after
    with pytest.raises(RecursionError):
        scene.use(way)
    assert scene.is_held()

    scene.port.usual = delivered
    scene.release_beside()

    assert not scene.is_held()


def test_endless_lock_of_a_given_token_is_undone_though_there_is_no_room(scene: Scene) -> None:
    def no_room_after(request: Request) -> Any:
        if is_settled():
            raise RecursionError
        reply = request.execute()
        if is_settled():
            raise RecursionError
        return scene.port.received(reply)

    def is_settled() -> bool:
        return bool(scene.port.server.value(KEY) == name)

    name = "T"
    scene.port.usual = no_room_after
    with pytest.raises(RecursionError):
        redis_lock_decorators.lock.Lock(redis.Redis(), KEY).acquire(token=name)
    assert is_settled()

    scene.port.usual = delivered
    scene.release_beside()

    assert not scene.is_held()
