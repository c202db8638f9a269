"""A server that is not the master ends idle connections to it, but no command of the program."""

from __future__ import annotations

from queue import Full, LifoQueue, Queue
from typing import Any

import pytest
import redis
from redis.exceptions import ReadOnlyError, ResponseError

from redis_lock_decorators._io import client_methods
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

    def __init__(self, pool: Any, error: BaseException | None = None) -> None:
        self.connection_pool = pool
        self.error = error

    def execute_command(self, *command: Any) -> Any:
        raise self.error or AssertionError


class Node:
    """A node of a cluster."""

    def __init__(self, client: Client | None) -> None:
        self.redis_connection = client


class ValkeyNode:
    """The same of valkey-py."""

    def __init__(self, client: Client | None) -> None:
        self.valkey_connection = client


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
    if not issubclass(kind, redis.BlockingConnectionPool):
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


class CountingPool(redis.ConnectionPool):
    """A pool of a program, whose method has fewer arguments than that of the library."""

    def disconnect(self) -> None:
        super().disconnect()


def test_idle_connections_of_a_programs_pool_are_dropped() -> None:
    pool, used, idle = pool_with_connections(CountingPool)

    disconnect(Client(pool))

    assert (used.is_connected, idle.is_connected) == (True, False)


class Watching(Connection):
    """Finds out whether a thread could take it from its pool while it is closed."""

    def __init__(self, **_: Any) -> None:
        super().__init__()
        self.pool: Any = None
        self.was_queued = False

    def disconnect(self) -> None:
        super().disconnect()
        self.was_queued = self in self.pool.queue


@pytest.mark.parametrize("kind", [redis.BlockingConnectionPool, QueuedPool])
def test_no_thread_gets_a_connection_that_is_being_closed(kind: Any) -> None:
    """The pool opens others in the place of those; its number of connections is the same."""
    pool = kind(connection_class=Watching, max_connections=3)
    idle = Watching()
    idle.connect()
    idle.pool = pool.pool
    pool._connections = [idle]
    pool.pool.get_nowait()
    pool.pool.put_nowait(idle)

    disconnect(Client(pool))

    assert (idle.is_connected, idle.was_queued) == (False, False)
    assert list(pool.pool.queue) == [None] * 3
    assert pool._connections == []


@pytest.mark.parametrize("queue", [LifoQueue, Queue])
def test_all_idle_connections_in_a_queue_are_dropped(queue: Any) -> None:
    pool = QueuedPool(connection_class=Connection, max_connections=3, queue_class=queue)
    connections = [Connection(), Connection()]
    for connection in connections:
        connection.connect()
        pool.pool.get_nowait()
    for connection in connections:
        pool.pool.put_nowait(connection)

    disconnect(Client(pool))

    assert not any(connection.is_connected for connection in connections)
    assert pool.pool.qsize() == 3


def test_mutex_that_is_never_released_is_not_waited_for_without_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_methods, "_LONGEST_WAIT_FOR_MUTEX", 0.01)
    pool = QueuedPool(connection_class=Connection, max_connections=3)
    pool.pool.mutex.acquire()

    disconnect(Client(pool))

    assert pool.pool.mutex.locked()


class QueueOfGreenlets:
    """A queue without a mutex, as those of gevent and eventlet.

    These are not imported here: eventlet would then warn of each fork in the tests of this process.
    """

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.queue: list[Any] = []

    def qsize(self) -> int:
        return len(self.queue)

    def put_nowait(self, connection: Any) -> None:
        if self.qsize() == self.maxsize:
            raise Full
        self.queue.append(connection)

    def get_nowait(self) -> Any:
        return self.queue.pop()


def test_idle_connections_in_a_queue_of_greenlets_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis-py 5 and valkey-py have no method for idle ones only."""
    monkeypatch.setattr(client_methods, "_library_method", lambda *_: None)
    pool = QueuedPool(connection_class=Connection, max_connections=3, queue_class=QueueOfGreenlets)
    idle = Connection()
    idle.connect()
    pool.pool.get_nowait()
    pool.pool.put_nowait(idle)

    disconnect(Client(pool))

    assert not idle.is_connected
    assert pool.pool.qsize() == 3


def test_pool_without_a_way_to_disconnect_is_left_unchanged() -> None:
    error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        replies_of(Client(object(), error), [("GET", b"a")])


@pytest.mark.parametrize("node", [Node, ValkeyNode])
@pytest.mark.parametrize("kind", [redis.ConnectionPool, QueuedPool])
@pytest.mark.parametrize("error", NOT_MASTER, ids=str)
def test_only_idle_connections_to_the_node_that_answered_are_dropped(
    node: Any, kind: Any, error: Exception
) -> None:
    first, second = pool_with_connections(kind), pool_with_connections(kind)
    cluster = Cluster(*(node(Client(pool)) for pool, *_ in (first, second)), error=error)

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
