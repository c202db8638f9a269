"""Slots that are being moved: their nodes refuse scripts over several keys, and do not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from support.cluster_nodes import Nodes
from support.fronts import LEGACY

from redis_lock_decorators import RedisLock, _lua
from redis_lock_decorators._io.client_nodes import node_of
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.asyncio_client import ClientTransport
from redis_lock_decorators._io.transport.background_client import ThreadTransport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._rules.keys import slot_of, with_notes
from redis_lock_decorators.asyncio import RedisLock as AsyncLock
from redis_lock_decorators.testing import LocalCluster

ECHO = "return ARGV[1]"

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no cluster of its own")


class Torn:
    """A cluster whose slots can be torn between two of its nodes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.nodes = Nodes(cluster)
        self._torn: list[int] = []

    def key(self, name: str) -> bytes:
        """A key, whose name is a hash tag, at the node that slots are moved from."""
        tags = (f"sys:lock:{{{name}{number}}}".encode() for number in range(1000))
        return next(tag for tag in tags if self.nodes.owner(tag) == 0)

    def tear(self, key: bytes, *moved: bytes) -> None:
        """Begin to move the slot of a key, and move these keys."""
        slot, (here, there) = slot_of(key), self.nodes.clients[:2]
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.nodes.names[0])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.nodes.names[1])
        self._torn.append(slot)
        if moved:
            port = self.cluster.nodes[1].port
            here.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *moved)

    def mend(self) -> None:
        for slot in self._torn:
            for client in self.nodes.clients[:2]:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.nodes.names[0])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


@pytest.fixture
def torn(cluster):
    torn = Torn(cluster)
    yield torn
    torn.mend()
    torn.nodes.close()


def threads(torn: Torn, commands: list[tuple[Any, ...]], forgets: bool = False) -> list[Any]:
    client = torn.cluster.client()
    if forgets:
        forget(torn, client)
    return replies_of(client, commands)


def valkey_threads(torn: Torn, commands: list[tuple[Any, ...]], forgets: bool = False) -> list[Any]:
    library = pytest.importorskip("valkey")
    client = library.ValkeyCluster("127.0.0.1", torn.cluster.nodes[0].port)
    if forgets:
        forget(torn, client)
    return replies_of(client, commands)


def tasks(torn: Torn, commands: list[tuple[Any, ...]], forgets: bool = False) -> list[Any]:
    async def send(client: Any) -> list[Any]:
        await client.initialize()
        if forgets:
            forget(torn, client)
        return await batched(ClientTransport(client), commands)

    return with_client(torn, send)


async def batched(transport: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to commands that tasks send together."""
    batcher = RequestBatcher()
    replies = [batcher.queue(transport, command, monotonic() + 20) for command in commands]
    batcher._send_if_idle(transport)
    return await asyncio.gather(*replies, return_exceptions=True)


def forget(torn: Torn, client: Any) -> None:
    """Let a client not know the node that imports slots."""
    node = client.get_node("127.0.0.1", torn.cluster.nodes[1].port)
    del client.nodes_manager.nodes_cache[node.name]


def with_client(torn: Torn, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Call a function with an asyncio client of the cluster, and await its result."""

    async def call() -> Any:
        async with AsyncCluster(host="127.0.0.1", port=torn.cluster.nodes[0].port) as client:
            return await work(client)

    return asyncio.run(call())


@pytest.fixture(params=[threads, valkey_threads, tasks])
def send(request: pytest.FixtureRequest) -> Any:
    return request.param


def echo(count: object, *keys: bytes) -> tuple[Any, ...]:
    return "EVAL", ECHO, len(keys), *keys, count


@pytest.mark.parametrize("moved", [[0], [0, 1]])
@pytest.mark.parametrize("count", [1, 3])
def test_client_does_not_repeat_a_script_over_several_keys(
    torn: Torn, send: Any, name: str, moved: list[int], count: int
) -> None:
    key = torn.key(name)
    keys = key, key + b"b", key + b"c"
    torn.nodes.clients[0].mset(dict.fromkeys(keys, b"value"))
    torn.tear(key, *[keys[number] for number in moved])

    replies = send(torn, [echo(number, *keys) for number in range(count)])

    assert [type(reply).__name__ for reply in replies] == ["TryAgainError"] * count
    assert send(torn, [echo(0, keys[0]), echo(1, keys[2])]) == [b"0", b"1"]


@pytest.mark.parametrize("count", [1, 3])
def test_scripts_are_sent_to_the_node_that_has_all_keys(
    torn: Torn, send: Any, name: str, count: int
) -> None:
    key = torn.key(name)
    torn.nodes.clients[0].mset({key: b"value", key + b"b": b"value"})
    torn.tear(key, key, key + b"b")

    replies = send(torn, [echo(number, key, key + b"b") for number in range(count)])

    assert replies == [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("others", [0, 1])
def test_scripts_are_sent_to_a_node_that_the_client_does_not_know(
    torn: Torn, send: Any, name: str, count: int, others: int
) -> None:
    """A node that serves no slots is not listed by CLUSTER SLOTS."""
    key = torn.key(name)
    keys = key, *[key + b"b"] * others
    torn.nodes.clients[0].mset(dict.fromkeys(keys, b"value"))
    torn.tear(key, *keys)

    replies = send(torn, [echo(number, *keys) for number in range(count)], forgets=True)

    assert replies == [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("send", [threads, tasks])
def test_scripts_of_one_importing_node_are_sent_together(
    torn: Torn, send: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each exchange takes a round trip, for which all leases of the batch wait."""
    keys, pipelines = [torn.key(f"{name}-{number}-") for number in range(3)], []

    def counted(pipeline: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: pipelines.append(args) or pipeline(*args, **options)

    for key in keys:
        torn.nodes.clients[0].set(key, b"value")
        torn.tear(key, key)
    for kind in (redis.RedisCluster, AsyncCluster):
        monkeypatch.setattr(kind, "pipeline", counted(kind.pipeline))

    assert send(torn, [echo(0, key) for key in keys]) == [b"0"] * 3
    assert len(pipelines) == 2


def test_keys_are_read_from_a_node_that_the_client_does_not_know(
    torn: Torn, send: Any, name: str
) -> None:
    key = torn.key(name)
    torn.nodes.clients[0].set(key, b"value")
    torn.tear(key, key)

    assert send(torn, [("GET", key)], forgets=True) == [b"value"]


def test_address_of_an_importing_node_is_replaced_as_the_client_demands(
    torn: Torn, name: str
) -> None:
    """As by a client that reaches the nodes over forwarded ports."""
    announced: list[Any] = []

    def remap(address: tuple[str, int]) -> tuple[str, int]:
        announced.append(address)
        return address

    client = redis.RedisCluster("127.0.0.1", torn.cluster.nodes[0].port, address_remap=remap)
    key = torn.key(name)
    torn.nodes.clients[0].set(key, b"value")
    torn.tear(key, key)
    announced.clear()

    assert replies_of(client, [echo(1, key)]) == [b"1"]
    assert announced == [("127.0.0.1", torn.cluster.nodes[1].port)]


def test_lock_gets_no_shared_identifier_without_a_record(torn: Torn, name: str) -> None:
    """Its record becomes empty in the script, and cannot be created again at this node."""
    lock, queue, waiters, released = keys = with_notes((torn.key(name),))
    client = torn.nodes.clients[0]
    client.set(lock, "first", px=10_000)
    client.zadd(queue, {"one|another|2000": 1})
    client.hset(waiters, "granted", "one|first|2000")
    client.zadd(released, {"by:earlier": -1})
    torn.tear(lock)

    with pytest.raises(redis.ResponseError, match="non local key"):
        text = _lua.script("settle").text.decode()
        client.eval(text, 4, *keys, "first", 1, "token", 1, 10**15, 60_000)

    assert client.get(lock) == b"first"


@pytest.mark.parametrize("count", [1, 3])
def test_scripts_follow_a_slot_that_has_moved(torn: Torn, name: str, count: int) -> None:
    key, client = torn.key(name), torn.cluster.client()
    commands = [echo(number, key, key + b"b") for number in range(count)]
    expected = [str(number).encode() for number in range(count)]
    assert replies_of(client, commands) == expected

    torn.nodes.move(key, 1)
    try:
        assert replies_of(client, commands) == expected
    finally:
        torn.nodes.move(key, 0)


def test_script_is_sent_again_if_its_connection_is_closed(torn: Torn, name: str) -> None:
    key, client = torn.key(name), torn.cluster.client()
    command, server = echo(1, key, key + b"b"), torn.nodes.clients[0]

    async def send(client: Any) -> list[Any]:
        transport = ClientTransport(client)
        await transport.send_batch([command], monotonic() + 20)
        server.execute_command("CLIENT", "KILL", "TYPE", "normal")
        return await transport.send_batch([command], monotonic() + 20)

    assert replies_of(client, [command]) == [b"1"]
    server.execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert replies_of(client, [command]) == [b"1"]
    assert with_client(torn, send) == [b"1"]


def test_method_that_is_overridden_gets_the_scripts_that_are_sent_alone(
    torn: Torn, name: str
) -> None:
    sent: list[Any] = []

    class Traced(redis.RedisCluster):
        def execute_command(self, *command: Any, **options: Any) -> Any:
            sent.append(command)
            return super().execute_command(*command, **options)

    client, key = Traced(host="127.0.0.1", port=torn.cluster.nodes[0].port), torn.key(name)
    sent.clear()

    assert replies_of(client, [echo(1, key, key + b"b")]) == [b"1"]

    assert [command[3:] for command in sent] == [(key, key + b"b", 1)]


def names_of(torn: Torn, name: str, count: int) -> list[str]:
    """Names of locks in so many slots of one node."""
    return [torn.key(f"{name}-{number}-").decode()[9:] for number in range(count)]


def test_leases_are_renewed_while_many_slots_of_their_node_move(torn: Torn, name: str) -> None:
    client, lost = torn.cluster.client(), []
    moving, held = names_of(torn, name, 12), names_of(torn, f"{name}-held", 2)
    leases = [
        RedisLock(one, client=client, expire=2, on_lost=lambda *loss: lost.append(loss)).acquire()
        for one in [*moving, *[f"{one}b" for one in moving], *held]
    ]

    for one in moving:
        key = f"sys:lock:{one}".encode()
        torn.tear(key, key)
    time.sleep(4)

    assert lost == []
    for lease in leases:
        lease.release()


def test_waiters_that_give_up_in_a_moving_slot_do_not_delay_other_locks(
    torn: Torn, name: str
) -> None:
    moving, other = names_of(torn, name, 2)
    waiters = [f"{moving}{number}" for number in range(20)]
    held = [RedisLock(one, client=torn.cluster.client()).acquire() for one in waiters]

    async def compete(client: Any) -> None:
        async def wait(one: str) -> None:
            assert await AsyncLock(one, client=client).acquire(1) is None

        waits = [asyncio.ensure_future(wait(one)) for one in waiters]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(torn.tear, f"sys:lock:{moving}".encode())
        await asyncio.sleep(0.6)
        for _ in range(5):
            async with AsyncLock(other, client=client, acquire_time=2):
                await asyncio.sleep(0.05)
        await asyncio.gather(*waits)

    with_client(torn, compete)
    for lease in held:
        lease.release()


async def send_to_silent_node(torn: Torn, transport: Any, name: str) -> list[Any]:
    """The results of scripts in two moved slots and in another one; the importing node is silent.

    With the time of the last one in seconds.
    """
    key, second, other = [torn.key(f"{name}-{number}-") for number in range(3)]
    torn.nodes.clients[0].mset({key: b"value"})
    torn.nodes.clients[0].mset({second: b"value"})
    torn.tear(key, key)
    torn.tear(second, second)
    batcher, results = RequestBatcher(), []
    torn.cluster.nodes[1].pause()
    try:
        began = monotonic()
        for command in (echo(0, key), echo(1, other), echo(2, second)):
            results.append(batcher.queue(transport, command, began + 2))
        batcher._send_if_idle(transport)
        found = [await results[1], monotonic() < began + 1.9]
        return [*found, *await asyncio.gather(*results, return_exceptions=True)]
    finally:
        torn.cluster.nodes[1].resume()
        while "fail" in torn.cluster.nodes[0].ask("CLUSTER", "NODES"):
            await asyncio.sleep(0.05)


def test_tasks_do_not_wait_for_a_silent_importing_node_of_others(torn: Torn, name: str) -> None:
    async def send(client: Any) -> list[Any]:
        await client.initialize()
        return await send_to_silent_node(torn, ClientTransport(client), name)

    assert_others_are_answered(with_client(torn, send))


def test_calls_do_not_wait_for_a_silent_importing_node_of_others(torn: Torn, name: str) -> None:
    client = torn.cluster.client(socket_timeout=5)
    state: Any = SimpleNamespace(node=node_of)

    async def send() -> list[Any]:
        return await send_to_silent_node(torn, ThreadTransport(client, state), name)

    assert_others_are_answered(asyncio.run(send()))


def assert_others_are_answered(found: list[Any]) -> None:
    first, is_in_time, *results = found
    assert (first, is_in_time) == (b"1", True)
    assert [type(result).__name__ for result in results] == [
        "TimeoutError",
        "bytes",
        "TimeoutError",
    ]
