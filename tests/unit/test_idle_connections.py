"""A server that is not the master ends idle connections to it, but no command of the program."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import ReadOnlyError, ResponseError

from redis_lock_decorators._io.client_methods import disconnect
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._rules.keys import slot_of

NOT_MASTER = [ReadOnlyError("READONLY"), ResponseError("NOREPLICAS Not enough good replicas")]
KEYS = b"a", b"b"


class Connection:
    """A connection without a socket."""

    def __init__(self, **_: Any) -> None:
        self.is_connected = False

    def connect(self) -> None:
        self.is_connected = True

    def disconnect(self) -> None:
        self.is_connected = False


class QueuedPool(redis.BlockingConnectionPool):
    """A pool that can only drop all connections at once, as of redis-py 5 and valkey-py."""

    def disconnect(self, _: bool = True) -> None:
        pytest.fail("connections in use were dropped")


class Client:
    """A blocking client, whose server replies with an error."""

    def __init__(self, pool: Any, error: Exception | None = None) -> None:
        self.connection_pool = pool
        self.error = error

    def execute_command(self, *command: Any) -> Any:
        raise self.error or AssertionError


class Node:
    """A node of a cluster."""

    def __init__(self, client: Client | None) -> None:
        self.redis_connection = client


class Cluster:
    """A cluster client that has one key on each of two nodes."""

    def __init__(self, *nodes: Node, error: Exception | None = None) -> None:
        self.nodes_manager = self
        self.slots_cache = {slot_of(key): [node] for key, node in zip(KEYS, nodes, strict=True)}
        self.nodes, self.error = nodes, error

    def get_nodes(self) -> Any:
        return self.nodes

    def execute_command(self, *command: Any) -> Any:
        raise self.error or AssertionError

    def disconnect_connection_pools(self) -> None:
        pytest.fail("connections in use were dropped")


def pool_with_connections(kind: Any = redis.ConnectionPool) -> tuple[Any, Any, Any]:
    """A pool, a connection that is in use, and an idle one."""
    pool = kind(connection_class=Connection, max_connections=3)
    used, idle = Connection(), Connection()
    for connection in (used, idle):
        connection.connect()
    if kind is redis.ConnectionPool:
        pool._in_use_connections.add(used)
        pool._available_connections.append(idle)
    else:
        pool._connections = [used, idle]
        pool.pool.get_nowait()
        pool.pool.get_nowait()
        pool.pool.put_nowait(idle)
    return pool, used, idle


@pytest.mark.parametrize("kind", [redis.ConnectionPool, QueuedPool])
@pytest.mark.parametrize("error", NOT_MASTER, ids=str)
def test_command_that_is_under_way_is_not_interrupted(kind: Any, error: Exception) -> None:
    pool, used, idle = pool_with_connections(kind)

    assert replies_of(Client(pool, error), [("GET", b"a")]) == [error]

    assert used.is_connected
    assert not idle.is_connected


def test_pool_whose_connections_are_all_in_use_is_left_unchanged() -> None:
    pool, _, _ = pool_with_connections(QueuedPool)
    while not pool.pool.empty():
        pool.pool.get_nowait()

    disconnect(Client(pool))

    assert pool.pool.empty()


def test_pool_keeps_the_number_of_its_connections() -> None:
    pool, _, idle = pool_with_connections(QueuedPool)
    before = list(pool.pool.queue)

    disconnect(Client(pool))

    assert list(pool.pool.queue) == before
    assert before[-1] is idle


@pytest.mark.parametrize("kind", [redis.ConnectionPool, QueuedPool])
@pytest.mark.parametrize("error", NOT_MASTER, ids=str)
def test_only_idle_connections_to_the_node_that_answered_are_dropped(
    kind: Any, error: Exception
) -> None:
    first, second = pool_with_connections(kind), pool_with_connections(kind)
    cluster = Cluster(*(Node(Client(pool)) for pool, *_ in (first, second)), error=error)

    assert replies_of(cluster, [("GET", KEYS[1])]) == [error]

    assert [one.is_connected for one in (*first[1:], *second[1:])] == [True, True, True, False]


def test_reply_to_another_command_drops_idle_connections_to_all_nodes() -> None:
    first, second = pool_with_connections(), pool_with_connections()

    disconnect(Cluster(*(Node(Client(pool)) for pool, *_ in (first, second))))

    assert [one.is_connected for one in (*first[1:], *second[1:])] == [True, False, True, False]


def test_node_without_connections_and_unknown_slot_are_skipped() -> None:
    cluster = Cluster(Node(None), Node(None))
    disconnect(cluster)

    disconnect(cluster, ("GET", b"c"))
