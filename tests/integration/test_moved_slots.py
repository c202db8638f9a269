"""Many slots that have moved at the same time: their requests follow together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from support.cluster_nodes import Nodes
from support.distance import HOST, distant
from support.fronts import LEGACY

from redis_lock_decorators import RedisLock
from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.client_nodes import node_of
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.asyncio_client import ClientTransport
from redis_lock_decorators._io.transport.background_client import ThreadTransport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.asyncio import RedisLock as AsyncLock
from redis_lock_decorators.testing import LocalCluster

COUNT = 12
#: So many requests to a distant node, one after the other, take longer than a lease lasts.
MANY, ROUND_TRIP, EXPIRE = 150, 0.1, 3.0

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no cluster of its own")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def keys_at(nodes: Nodes, place: int, name: str, count: int) -> list[bytes]:
    """Keys of locks in different slots of one node."""
    found: dict[int, bytes] = {}
    for number in range(100_000):
        key = f"sys:lock:{name}-{number}".encode()
        if slot_of(key) not in found and nodes.owner(key) == place:
            found[slot_of(key)] = key
        if len(found) == count:
            break
    return list(found.values())


class Seen:
    """The pipelines that a client makes, the calls of its own method, and those that close it."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pipelines: list[Any] = []
        self.calls: list[Any] = []
        self.closed: list[Any] = []
        kind = type(client)
        for method, seen in (
            ("pipeline", self.pipelines),
            ("_execute_command", self.calls),  # a wrapped ``execute_command`` gets all requests
            ("aclose" if hasattr(kind, "aclose") else "close", self.closed),
        ):
            monkeypatch.setattr(kind, method, self._noting(getattr(kind, method), seen))

    def _noting(self, method: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen.append(args[1:])
            return method(*args, **options)

        return call


def commands_of(keys: list[bytes]) -> list[tuple[Any, ...]]:
    return [("EVAL", "return ARGV[1]", 1, key, number) for number, key in enumerate(keys)]


def expected(keys: list[bytes]) -> list[bytes]:
    return [str(number).encode() for number in range(len(keys))]


async def batched(transport: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to commands that tasks send together."""
    batcher = RequestBatcher()
    replies = [batcher.queue(transport, command, monotonic() + 20) for command in commands]
    batcher._send_if_idle(transport)
    return await asyncio.gather(*replies, return_exceptions=True)


def blocking_client(library: str, port: int) -> Any:
    module = pytest.importorskip(library)
    return (module.RedisCluster if library == "redis" else module.ValkeyCluster)(HOST, port)


def calls(client: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
    return replies_of(client, commands)


def renewals(client: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
    state = ClientState(client, PrivatePool(), background_loop())
    return asyncio.run(batched(ThreadTransport(client, state), commands))


def moved_there_and_back(nodes: Nodes, keys: list[bytes]) -> contextlib.AbstractContextManager[Any]:
    @contextlib.contextmanager
    def moved() -> Iterator[None]:
        nodes.move_all(keys, 0, 1)
        try:
            yield
        finally:
            nodes.move_all(keys, 1, 0)

    return moved()


@pytest.mark.parametrize("library", ["redis", "valkey"])
@pytest.mark.parametrize("send", [calls, renewals])
@pytest.mark.parametrize("count", [1, COUNT])
def test_threads_send_the_requests_of_moved_slots_together(
    cluster: LocalCluster,
    nodes: Nodes,
    library: str,
    send: Any,
    count: int,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, keys = blocking_client(library, cluster.nodes[0].port), keys_at(nodes, 0, name, count)
    with moved_there_and_back(nodes, keys):
        seen = Seen(client, monkeypatch)
        replies = send(client, commands_of(keys))
        assert replies == expected(keys)
        assert (len(seen.pipelines), seen.calls) == (min(count, 2), [])
        there = client.get_node(HOST, cluster.nodes[1].port).name
        assert {node_of(client, ("GET", key)) for key in keys} == {there}
    client.close()


@pytest.mark.parametrize("library", ["redis", "valkey"])
@pytest.mark.parametrize("count", [1, COUNT])
def test_tasks_send_the_requests_of_moved_slots_together(
    cluster: LocalCluster,
    nodes: Nodes,
    library: str,
    count: int,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client is not closed in between, which would cut the requests to other nodes off."""
    module = pytest.importorskip(f"{library}.asyncio.cluster")
    kind = module.RedisCluster if library == "redis" else module.ValkeyCluster
    keys = keys_at(nodes, 0, name, count)

    async def send() -> None:
        async with kind(host=HOST, port=cluster.nodes[0].port) as client:
            await client.initialize()
            with moved_there_and_back(nodes, keys):
                seen = Seen(client, monkeypatch)
                assert await batched(ClientTransport(client), commands_of(keys)) == expected(keys)
                assert (len(seen.pipelines), seen.calls, seen.closed) == (min(count, 2), [], [])
                there = client.get_node(HOST, cluster.nodes[1].port).name
                assert {node_of(client, ("GET", key)) for key in keys} == {there}

    asyncio.run(send())


def test_client_of_a_single_node_reports_the_redirection(nodes: Nodes, name: str) -> None:
    (key,) = keys_at(nodes, 1, name, 1)
    commands = commands_of([key]) * 2

    async def send() -> list[Any]:
        client = redis.asyncio.Redis(host=HOST, port=nodes.nodes[0].port)
        try:
            return await batched(ClientTransport(client), commands)
        finally:
            await client.aclose()

    replies = [
        *calls(nodes.clients[0], commands),
        *renewals(nodes.clients[0], commands),
        *asyncio.run(send()),
    ]
    assert len(replies) == 6
    assert all(isinstance(reply, redis.ResponseError) for reply in replies)


@pytest.fixture
def far(cluster: LocalCluster) -> Iterator[dict[str, Any]]:
    """The options of clients for which each node is far away."""
    with contextlib.ExitStack() as proxies:
        ports = {
            node.port: proxies.enter_context(distant(node.port, ROUND_TRIP)).port
            for node in cluster.nodes
        }
        yield {
            "host": HOST,
            "port": ports[cluster.nodes[0].port],
            "address_remap": lambda address: (HOST, ports.get(address[1], address[1])),
        }


def names_at(nodes: Nodes, name: str) -> tuple[list[bytes], list[str]]:
    """The keys of locks in slots that move, and the names of these locks and of others."""
    keys, others = keys_at(nodes, 0, name, MANY), keys_at(nodes, 0, f"{name}-other", 2)
    return keys, [key.decode().removeprefix("sys:lock:") for key in [*keys, *others]]


def test_distant_leases_of_threads_outlive_a_move_of_many_slots(
    nodes: Nodes, far: dict[str, Any], name: str
) -> None:
    client, lost = redis.RedisCluster(**far), []
    keys, names = names_at(nodes, name)
    options = {"expire": EXPIRE, "on_lost": lambda *loss: lost.append(loss)}
    locks = [RedisLock(one, client=client, **options) for one in names]
    with ThreadPoolExecutor(MANY) as threads:
        leases = list(threads.map(lambda lock: lock.acquire(), locks))
        with moved_there_and_back(nodes, keys):
            time.sleep(1.2 * EXPIRE)
            assert lost == []
            list(threads.map(lambda lease: lease.release(), leases))
    client.close()


def test_distant_leases_of_tasks_outlive_a_move_of_many_slots(
    nodes: Nodes, far: dict[str, Any], name: str
) -> None:
    lost: list[Any] = []
    keys, names = names_at(nodes, name)
    options = {"expire": EXPIRE, "cancel_on_lost": False}

    async def hold() -> None:
        async with AsyncCluster(**far) as client:
            locks = [
                AsyncLock(one, client=client, on_lost=lambda *loss: lost.append(loss), **options)
                for one in names
            ]
            leases = await asyncio.gather(*[lock.acquire() for lock in locks])
            with moved_there_and_back(nodes, keys):
                await asyncio.sleep(1.2 * EXPIRE)
                assert lost == []
                await asyncio.gather(*[lease.release() for lease in leases])

    asyncio.run(hold())
