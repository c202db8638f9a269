"""A lock is released though its exit was interrupted or had no stack or memory left."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import redis
from support.faults import Request, delivered
from support.interruptions import Interruption, interrupt_every_line
from support.simulation import Clock, SimulatedPort, SimulatedServer

import redis_lock_decorators.lease
import redis_lock_decorators.lock
from redis_lock_decorators import _attempts, redislock
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.lease_base import claim_for

KEY = b"sys:lock:a"
#: Before Python 3.11 a signal handler runs after the first line of a function.
early = pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers run within the first try")
STACK_EXIT = contextlib.ExitStack.__exit__.__code__
USAGES = ["block", "lease", "call", "drop-in", "endless drop-in"]


class Interrupted(Exception):
    """An exception of a signal handler."""


class Scene:
    """A blocking lock on a simulated server, and the releases delegated to other threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))
        self.delegated: list[Callable[[], object]] = []
        releases = SimpleNamespace(call=self.delegated.append)
        for module in (redis_lock_decorators.lease, redis_lock_decorators.lock):
            monkeypatch.setattr(module, "releases", releases)
        for module in (_attempts, redislock):
            monkeypatch.setattr(module, "unheld", self._unheld)
        monkeypatch.setattr(redis_lock_decorators.lock.Lock, "_port", lambda _: self.port)
        self.lock = redislock.RedisLock("a", client=redis.Redis(), auto_renew=False)

    def use(self, usage: str, body: Callable[[], object] = lambda: None) -> None:
        """Call ``body`` while holding the lock."""
        if usage == "call":
            self.lock.call(body)
            return
        with self._block(usage):
            body()

    def is_held(self) -> bool:
        return self.port.server.value(KEY) is not None

    def run_delegated_releases(self) -> None:
        """Run the releases that other threads would run on their own stacks."""
        while self.delegated:
            self.delegated.pop()()

    def _block(self, usage: str) -> Any:
        if usage == "block":
            return self.lock
        if usage == "lease":
            return self.lock.acquire()
        timeout = None if usage == "endless drop-in" else 10
        return redis_lock_decorators.lock.Lock(redis.Redis(), KEY, timeout)

    def _unheld(self, config: Any, lock_names: tuple[str, ...]) -> Any:
        claim = claim_for(lock_names, config.options, redis_lock_decorators.lease.running())
        return redis_lock_decorators.lease.Lease(claim, self.port, config.options)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


@contextlib.contextmanager
def interrupted_at(is_due: Callable[[FrameType], bool]) -> Iterator[None]:
    """Raise before the first line of the next function of the package that is due."""

    def trace(frame: FrameType, event: str, argument: object) -> None:
        is_ours = "redis_lock_decorators" in frame.f_code.co_filename
        if event == "call" and is_ours and is_due(frame):
            sys.settrace(None)
            raise Interrupted

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupted(name: str) -> contextlib.AbstractContextManager[None]:
    """Raise before the first line of the next function of the package with this name."""
    return interrupted_at(lambda frame: frame.f_code.co_name == name)


def interrupted_anywhere() -> contextlib.AbstractContextManager[None]:
    """Raise before the first line of the first function that an exit stack calls at its end."""
    return interrupted_at(
        lambda frame: frame.f_back is not None and frame.f_back.f_code is STACK_EXIT
    )


@early
@pytest.mark.parametrize("usage", USAGES)
def test_lock_is_released_though_its_exit_is_interrupted_at_once(scene: Scene, usage: str) -> None:
    function = "_leave" if usage != "call" else "__exit__"
    with pytest.raises(Interrupted) as kept, interrupted(function):
        scene.use(usage)
    scene.run_delegated_releases()

    assert not scene.is_held()
    assert kept.tb is not None  # the exception with its frames is still alive


@early
def test_drop_in_whose_exit_was_interrupted_is_not_renewed(scene: Scene) -> None:
    one = redis_lock_decorators.lock.Lock(redis.Redis(), KEY, 10)
    with pytest.raises(Interrupted) as kept, interrupted("_leave"), one:
        pass
    scene.run_delegated_releases()

    assert one.local.token is None
    assert not scene.is_held()
    assert kept.value is not None


def test_looking_up_the_exit_of_a_lease_changes_nothing(scene: Scene) -> None:
    lease = scene.lock.acquire()
    assert lease is not None

    assert hasattr(lease, "__exit__")

    assert lease._block is None
    assert scene.delegated == []
    assert scene.is_held()
    lease.check()


def test_direct_call_of_the_exit_of_a_lease_releases_it(scene: Scene) -> None:
    lease = scene.lock.acquire()
    assert lease is not None

    lease.__exit__(None, None, None)

    assert not scene.is_held()
    assert scene.delegated == []


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
@pytest.mark.parametrize("usage", USAGES)
def test_release_without_stack_or_memory_runs_in_another_thread(
    scene: Scene, usage: str, error: type[Exception]
) -> None:
    def fail(request: Request) -> Any:
        raise error

    def body() -> None:
        scene.port.usual = fail

    with pytest.raises(error):
        scene.use(usage, body)
    assert scene.is_held()

    scene.port.usual = delivered
    scene.run_delegated_releases()

    assert not scene.is_held()


@pytest.mark.parametrize("usage", USAGES)
def test_undo_of_an_acquisition_without_stack_runs_in_another_thread(
    scene: Scene, usage: str
) -> None:
    def fail_after_executing(request: Request) -> Any:
        if not scene.is_held():
            request.execute()
        raise RecursionError

    scene.port.usual = fail_after_executing
    with pytest.raises(RecursionError):
        scene.use(usage)
    assert scene.is_held()

    scene.port.usual = delivered
    scene.run_delegated_releases()

    assert not scene.is_held()


def test_endless_lock_with_a_given_token_is_undone_without_stack(scene: Scene) -> None:
    def fail_after_executing(request: Request) -> Any:
        if is_acquired():
            raise RecursionError
        reply = request.execute()
        if is_acquired():
            raise RecursionError
        return scene.port.received(reply)

    def is_acquired() -> bool:
        return bool(scene.port.server.value(KEY) == token)

    token = "T"  # noqa: S105
    scene.port.usual = fail_after_executing
    with pytest.raises(RecursionError):
        redis_lock_decorators.lock.Lock(redis.Redis(), KEY).acquire(token=token)
    assert is_acquired()

    scene.port.usual = delivered
    scene.run_delegated_releases()

    assert not scene.is_held()


# Exit stacks, which keep an unbound exit and call it with the lock


@pytest.mark.parametrize("usage", ["block", "lease", "drop-in", "endless drop-in"])
def test_exit_stack_releases_though_it_is_interrupted_at_any_line(scene: Scene, usage: str) -> None:
    kept = []

    def work(interruption: Interruption) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(scene._block(usage))
                interruption.__enter__()
        except BaseException as error:
            kept.append(error)  # with the frame of the stack, which keeps the exit
            raise
        finally:
            interruption.__exit__()
            scene.run_delegated_releases()
            assert not scene.is_held(), interruption.location

    assert interrupt_every_line(work) > 50
    kept.clear()
    gc.collect()


@early
@pytest.mark.parametrize("usage", ["block", "lease", "drop-in", "endless drop-in"])
def test_exit_stack_releases_though_the_exit_is_interrupted_at_once(
    scene: Scene, usage: str
) -> None:
    with pytest.raises(Interrupted), interrupted("_leave"), contextlib.ExitStack() as stack:
        stack.enter_context(scene._block(usage))
    scene.run_delegated_releases()

    assert not scene.is_held()


@early
@pytest.mark.parametrize("usage", ["block", "drop-in", "endless drop-in"])
def test_exit_stack_releases_though_its_first_function_is_interrupted_at_once(
    scene: Scene, usage: str
) -> None:
    stack = contextlib.ExitStack()
    lock = scene._block(usage)
    with pytest.raises(Interrupted) as kept, interrupted_anywhere(), stack:
        stack.enter_context(lock)
    scene.run_delegated_releases()

    assert not scene.is_held()
    assert kept.tb is not None  # the exception with its frames, and so the exit, is still alive


def test_unbound_exit_can_be_called_repeatedly(scene: Scene) -> None:
    lock: Any = scene.lock
    enter, leave = type(lock).__enter__, type(lock).__exit__

    for _ in range(3):
        enter(lock)
        assert scene.is_held()
        leave(lock, None, None, None)
        assert not scene.is_held()


def test_unbound_exit_can_be_a_method_of_another_class(scene: Scene) -> None:
    class Other(redislock.RedisLock):
        __exit__ = redislock.RedisLock.__exit__  # type: ignore[assignment]

    lock = Other("a", client=redis.Redis(), auto_renew=False)
    for _ in range(2):
        with lock:
            assert scene.is_held()
        assert not scene.is_held()


# Leases that are deleted without a release


def test_claim_has_no_lease_after_that_is_dropped(scene: Scene) -> None:
    lease = scene.lock.acquire()
    assert lease is not None
    claim = lease._claim
    assert claim.has_lease()

    del lease

    assert not claim.has_lease()


def test_claim_has_no_lease_after_its_block_is_dropped(scene: Scene) -> None:
    stack = contextlib.ExitStack()
    lease = stack.enter_context(scene.lock)
    assert lease._claim.has_lease()

    del stack

    assert not lease._claim.has_lease()
