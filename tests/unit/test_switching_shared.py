"""Clients and connections that threads share, with thread switches at any line."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from support.simulation import SimulatedPort
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._io.client_sources import ClientSource, FactoryCalls
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.transport import private_pool as private_pools
from redis_lock_decorators._io.transport.origins import origin
from redis_lock_decorators._io.transport.private_pool import MAX_IDLE, PrivatePool

CLIENTS = Scenes(
    "_io/client_state",
    "_io/client_sources",
    "_io/per_factory",
    "_io/per_client",
    "_io/weak_references",
)
#: Also between the lines of ``Wire``, in which a request waits for its reply.
PRIVATE_POOL = Scenes("_io/transport/private_pool", "unit/test_switching_shared")


class NoLoop:
    renewer = wanted = None

    def __init__(self) -> None:
        self.clients: PerClient[Any] = PerClient()

    @staticmethod
    def now() -> float:
        return 1000.0


def same(found: list[Any], made: list[Any] | None = None) -> Callable[[], None]:
    def check() -> None:
        assert found[0] is found[1]
        assert made is None or len(made) == 1

    return check


@CLIENTS.add
def two_threads_need_a_client_first(switcher: Switcher) -> Scene:
    connections = ClientSource(PrivatePool, NoLoop(), awaited=False)  # type: ignore[arg-type]
    made: list[Any] = []
    found: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        return made[-1]

    making = connections._calls.setdefault(factory, FactoryCalls())
    making.lock = switcher.lock()  # type: ignore[assignment]

    def use() -> None:
        found.append(connections.client(factory))

    return Scene(use, use, same(found, made))


@CLIENTS.add
def two_threads_look_up_the_state_of_a_client(switcher: Switcher) -> Scene:
    connections = ClientSource(PrivatePool, NoLoop(), awaited=False)  # type: ignore[arg-type]
    client, found = redis.Redis(), []

    def use() -> None:
        found.append(connections.client_state(client))

    return Scene(use, use, same(found))


@CLIENTS.add
def two_threads_need_a_subscriber(switcher: Switcher) -> Scene:
    port, found = SimulatedPort(), []
    client_state = ClientState(redis.Redis(), PrivatePool(), NoLoop())  # type: ignore[arg-type]

    def use() -> None:
        found.append(client_state.subscriber(port, b"a"))

    return Scene(use, use, same(found))


@CLIENTS.add
def two_threads_need_a_cohort(switcher: Switcher) -> Scene:
    found: list[Any] = []
    client_state = ClientState(redis.Redis(), PrivatePool(), NoLoop())  # type: ignore[arg-type]

    def use() -> None:
        found.append(client_state.cohort(b"a", 1000))

    return Scene(use, use, same(found))


POOL = redis.ConnectionPool()


class Wire:
    """A connection that replies immediately, and fails if two requests use it at the same time."""

    connection = None
    origin = origin(POOL)

    def __init__(self, *, is_broken: bool = False, is_stale: bool = False) -> None:
        self.is_in_use = False
        self.is_open = True
        self.is_broken = is_broken
        self.is_stale = lambda: is_stale

    def exchange(self, data: bytes, count: int, until: float, sending: Any) -> list[Any]:
        assert not self.is_in_use, "two requests use one connection"
        self.is_in_use = True
        answered()  # other threads may run here
        assert self.is_open, "a closed connection is used"
        self.is_in_use = False
        if self.is_broken:
            raise redis.ConnectionError("gone")
        return [b"OK"] * count

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False


def answered() -> None:
    """Stands for the wait for a reply, during which other threads may run."""


def new_private_pool(*wires: Wire) -> tuple[PrivatePool, list[Wire]]:
    private_pool = PrivatePool()
    private_pool._idle += wires  # type: ignore[arg-type]
    return private_pool, list(wires)


def exchanging(private_pool: PrivatePool) -> Callable[[], None]:
    def exchange() -> None:
        with suppress(redis.ConnectionError):
            assert private_pool.exchange(POOL, ("PING",), math.inf) == b"OK"

    return exchange


def in_order(private_pool: PrivatePool, wires: list[Wire]) -> Callable[[], None]:
    """A check that each connection is either kept once or closed."""

    def check() -> None:
        assert len(set(map(id, private_pool._idle))) == len(private_pool._idle) <= MAX_IDLE
        assert all(wire.is_open is (wire in private_pool._idle) for wire in wires)

    return check


@PRIVATE_POOL.add
def two_threads_send_requests(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire())
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def two_threads_want_the_last_connection(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire())
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def two_threads_find_stale_connections(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(*[Wire(is_stale=True) for _ in range(3)])
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def idle_connections_are_dropped_while_a_request_is_sent(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire(), Wire())
    return Scene(exchanging(private_pool), private_pool.drop, in_order(private_pool, wires))


@PRIVATE_POOL.add
def connection_breaks_while_a_request_is_sent(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire(is_broken=True), Wire(is_broken=True))
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


ALL = [(scenes, scene) for scenes in (CLIENTS, PRIVATE_POOL) for scene in scenes]


@pytest.mark.parametrize(("scenes", "scene"), ALL, ids=[name_of(scene) for _, scene in ALL])
def test_structures_are_consistent_with_thread_switches_at_any_line(
    scenes: Scenes, scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_pools, "connected", lambda pool, until: Wire())

    assert scenes.explore(scene) > 5
