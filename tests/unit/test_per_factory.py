"""A factory that uses locks, or is interrupted by code that does, does not hang."""

from __future__ import annotations

import functools
import gc
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import redis

from redis_lock_decorators._io import client_sources, per_factory
from redis_lock_decorators._io.client_sources import ClientSource
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.per_factory import PerFactory
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators.errors import ConfigurationError

#: Seconds after which a thread counts as hanging.
HANGS = 10.0


class NoLoop:
    renewer = wanted = None

    def __init__(self) -> None:
        self.clients: PerClient[Any] = PerClient()


@pytest.fixture
def project() -> ClientSource[PrivatePool]:
    return ClientSource(PrivatePool, NoLoop(), awaited=False)  # type: ignore[arg-type]


def in_thread(work: Callable[[], Any]) -> Any:
    """Return the result of work on another thread; fail if it hangs."""
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


def test_code_that_interrupts_a_factory_can_use_its_client(
    project: ClientSource[PrivatePool],
) -> None:
    made: list[Any] = []
    seen: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        mine = made[-1]
        if len(made) == 1:  # as a signal handler or a finalizer, at any line
            seen.append(project.client(factory))
        return mine

    assert in_thread(lambda: project.client(factory)) is seen[0]
    assert project.client(factory) is seen[0]
    assert len(made) == 2


def test_factory_that_uses_its_own_lock_is_refused(project: ClientSource[PrivatePool]) -> None:
    class Factory:
        def __call__(self) -> Any:
            return project.client(self)

    def factory() -> Any:
        return project.client(factory)

    for one in (factory, Factory()):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="needs the client it is to make"):
                in_thread(lambda one=one: project.client(one))  # type: ignore[misc]


def test_factory_can_use_a_lock_of_another(project: ClientSource[PrivatePool]) -> None:
    def settings() -> Any:
        return redis.Redis(db=1)

    def main() -> Any:
        assert project.client(settings) is not None
        return redis.Redis(db=2)

    assert in_thread(lambda: project.client(main)) is project.client(main)


def test_slow_factory_does_not_delay_others(
    project: ClientSource[PrivatePool],
) -> None:
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


def test_factory_and_thread_that_wait_for_each_other_go_on(
    project: ClientSource[PrivatePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_sources, "PATIENCE", 0.0, raising=False)
    made: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        mine = made[-1]
        if len(made) == 1:
            in_thread(lambda: project.client(factory))
        return mine

    assert in_thread(lambda: project.client(factory)) is made[1]


def test_threads_that_waited_for_a_call_that_failed_get_its_error(
    project: ClientSource[PrivatePool],
) -> None:
    calls: list[OSError] = []
    errors: list[BaseException] = []

    def failing() -> Any:
        calls.append(OSError("no route to the server"))
        while len(waiting()) < 9 and len(calls) == 1:
            time.sleep(0.001)
        raise calls[-1]

    def waiting() -> Collection[object]:
        known = project._calls.get(failing)
        return () if known is None else known.waiting

    def use() -> None:
        try:
            project.client(failing)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=use, daemon=True) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)

    assert len(calls) == 1
    assert [str(error) for error in errors] == ["no route to the server"] * 10
    assert len({id(error) for error in errors}) == 10
    assert not waiting()
    with pytest.raises(OSError, match="no route"):
        project.client(failing)
    assert len(calls) == 2


def test_thread_that_waited_uses_the_client_that_was_made_despite_a_failure(
    project: ClientSource[PrivatePool],
) -> None:
    made: list[Any] = []
    used: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        if len(made) > 1:
            raise OSError
        mine = made[-1]
        thread.start()
        known: Any = project._calls.get(factory)
        while not known.waiting:
            time.sleep(0.001)
        with pytest.raises(OSError):
            project.client(factory)  # as a signal handler does that interrupts the factory
        return mine

    thread = threading.Thread(target=lambda: used.append(project.client(factory)), daemon=True)

    assert project.client(factory) is made[0]
    thread.join(HANGS)
    assert used == [made[0]]


# A client lives as long as its factory


class Maker:
    """An object whose attributes are factories; all its instances are equal."""

    def __call__(self) -> Any:
        return redis.Redis()

    def client(self) -> Any:
        return redis.Redis()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Maker)

    __hash__ = None  # type: ignore[assignment]


MADE = classmethod(lambda cls: redis.Redis())
KINDS: dict[str, Callable[[], Callable[[], Any]]] = {
    "lambda": lambda: lambda: redis.Redis(),
    "partial": lambda: functools.partial(redis.Redis, port=1),
    "bound method": lambda: Maker().client,
    "partial of a bound method": lambda: functools.partial(Maker().client),
    "object that is called": Maker,
    "bound class method": lambda: type("Own", (Maker,), {"make": MADE}).make,  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_client_is_removed_with_its_factory(
    project: ClientSource[PrivatePool], make: Callable[[], Callable[[], Any]]
) -> None:
    def use() -> list[Any]:
        factory: Any = make()
        client = project.client(factory)
        assert project.client(factory) is client
        assert project.client_state(client) is project.client_state(client)
        return [weakref.ref(client)]

    found = [one for _ in range(3) for one in use()]
    gc.collect()

    assert [one() for one in found] == [None] * 3
    assert len(project._clients) == len(project._lease_loop.clients) == 0


def test_bound_method_has_one_client_while_its_object_lives(
    project: ClientSource[PrivatePool],
) -> None:
    one, other = Maker(), Maker()

    client = project.client(one.client)
    gc.collect()

    assert project.client(one.client) is client
    assert project.client(one) is not client
    assert project.client(other.client) is not client


def test_factory_without_weak_references_keeps_its_client(
    project: ClientSource[PrivatePool],
) -> None:
    class Rigid:
        __slots__ = ()

        def __call__(self) -> Any:
            return redis.Redis()

    factory = Rigid()

    assert project.client(factory) is project.client(factory)


def test_factory_with_a_reused_id_has_a_separate_client() -> None:
    clients: PerFactory[str] = PerFactory()

    def gone() -> None:
        """A collected factory whose weak reference was not called yet."""

    def factory() -> None:
        pass

    place = (id(factory),)
    clients._entries[place] = per_factory._Entry((weakref.ref(gone),), "of the other")

    assert clients.get(factory) is None
    assert clients.setdefault(factory, "its own") == "its own"
    assert clients.get(factory) == "its own"


def test_projects_share_the_state_of_a_client() -> None:
    lease_loop: Any = NoLoop()
    client = redis.Redis()

    one, other = (ClientSource(PrivatePool, lease_loop, awaited=False) for _ in range(2))

    assert one.client_state(client) is other.client_state(client)


def test_equal_clients_have_separate_states() -> None:
    known: PerClient[str] = PerClient()
    one, other = Equal(), Equal()

    assert known.setdefault(one, "one") == "one"
    assert known.get(other) is None
    assert known.setdefault(other, "other") == "other"
    assert (known.get(one), known.setdefault(one, "again")) == ("one", "one")


def test_state_is_removed_with_its_client() -> None:
    known: PerClient[str] = PerClient()
    client = Equal()
    known.setdefault(client, "value")

    del client

    assert len(known) == 0


def test_client_without_weak_references_or_hash_has_a_state() -> None:
    known: PerClient[str] = PerClient()
    client: Any = []

    assert known.setdefault(client, "value") == "value"
    assert known.get(client) == "value"


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]
