"""The user's factory may itself use locks, and be interrupted by what does: nobody hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.world import connections
from redis_lock_decorators.world.connections import Connections
from redis_lock_decorators.world.lane import Lane

#: Seconds after which a thread counts as hanging.
HANGS = 10.0


class NoBell:
    keeper = wanted = None


@pytest.fixture
def project() -> Connections[Lane]:
    return Connections(Lane, NoBell(), awaited=False)  # type: ignore[arg-type]


def in_thread(work: Callable[[], Any]) -> Any:
    """What the work returns; fails if it never does."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = results.get(timeout=HANGS)
    except queue.Empty:
        raise AssertionError("it hangs") from None
    if isinstance(result, BaseException):
        raise result
    return result


def test_what_interrupts_a_factory_on_its_thread_may_use_its_client(
    project: Connections[Lane],
) -> None:
    made: list[Any] = []
    seen: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        mine = made[-1]
        if len(made) == 1:  # as a signal handler or a finaliser, at any line
            seen.append(project.client(factory))
        return mine

    assert in_thread(lambda: project.client(factory)) is seen[0]
    assert project.client(factory) is seen[0]
    assert len(made) == 2


def test_a_factory_that_uses_its_own_lock_is_told(project: Connections[Lane]) -> None:
    class Factory:
        def __call__(self) -> Any:
            return project.client(self)

    def factory() -> Any:
        return project.client(factory)

    for one in (factory, Factory()):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="needs the client it is to make"):
                in_thread(lambda one=one: project.client(one))  # type: ignore[misc]


def test_a_factory_may_use_a_lock_of_another(project: Connections[Lane]) -> None:
    def settings() -> Any:
        return redis.Redis(db=1)

    def main() -> Any:
        assert project.client(settings) is not None
        return redis.Redis(db=2)

    assert in_thread(lambda: project.client(main)) is project.client(main)


def test_a_slow_factory_keeps_no_other_from_being_called(project: Connections[Lane]) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow() -> Any:
        begun.set()
        assert goes_on.wait(3 * HANGS)
        return redis.Redis()

    thread = threading.Thread(target=project.client, args=(slow,), daemon=True)
    thread.start()
    assert begun.wait(HANGS)
    try:
        assert in_thread(lambda: project.client(lambda: redis.Redis())) is not None
    finally:
        goes_on.set()
        thread.join()


def test_a_factory_that_waits_for_a_thread_that_needs_it_does_not_wait_for_ever(
    project: Connections[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.0, raising=False)
    made: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        mine = made[-1]
        if len(made) == 1:
            in_thread(lambda: project.client(factory))
        return mine

    assert in_thread(lambda: project.client(factory)) is made[1]
