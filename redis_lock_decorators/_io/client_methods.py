"""Uses of a client's own methods: encoding, pipelines, idle connections."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis_lock_decorators._io.client_errors import part_of
from redis_lock_decorators._io.client_nodes import pools_of
from redis_lock_decorators._io.hook_errors import CLIENTS
from redis_lock_decorators._io.transport.encoding import encoded, words_of
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.errors import ConfigurationError

#: Threads hold the mutex of a queue for microseconds; in seconds.
_LONGEST_WAIT_FOR_MUTEX = 1.0


def undecoded(client: Any) -> dict[str, bool]:
    """The option that makes a client with ``decode_responses`` return a reply as bytes.

    The value of another library's lock may be no text, which must not raise an error.
    """
    if not hasattr(part_of(client, "client"), "NEVER_DECODE"):  # before redis-py 4
        return {}
    encoder = getattr(client, "get_encoder", None)
    return {"NEVER_DECODE": True} if encoder and encoder().decode_responses else {}


def as_sent(client: Any, text: str) -> bytes:
    """Encode a text as the client itself would.

    Raises:
        UnicodeEncodeError: the client's encoding lacks one of the characters.
    """
    pool = getattr(client, "connection_pool", client)  # a cluster client has none
    encoder, utf8 = getattr(pool, "get_encoder", None), text.encode()
    encoding = getattr(encoder(), "encoding", "utf-8") if callable(encoder) else "utf-8"
    if text.encode(encoding, "replace") == utf8:
        return utf8
    if not hasattr(pool, "connection_class"):
        return text.encode(encoding)
    # Ask a connection: with hiredis, blocking clients send UTF-8 in spite of their ``encoding``.
    connection = pool.connection_class(**pool.connection_kwargs)
    return words_of(b"".join(connection.pack_command("SET", text)))[1]


def has_pipelines(client: Any) -> bool:
    """Whether a client has a method for pipelines."""
    return callable(getattr(client, "pipeline", None))


def watches(client: Any) -> bool:
    """Whether a client's own pipelines can watch a key, over a connection that they expose.

    Those of redis-py's ``MultiDBClient`` do not expose it.
    """
    if not has_pipelines(client):
        return False
    pipeline = client.pipeline()
    if inspect.iscoroutine(pipeline):
        pipeline.close()
    return hasattr(pipeline, "watch") and hasattr(pipeline, "connection")


def has_single_connection(client: Any) -> bool:
    """Whether a client's own methods share one connection (``single_connection_client``).

    Pipelines use another one. Requests of a lock must not use it: before redis-py 6 and in
    valkey-py two threads read each other's replies, and a blocking command of the program, such as
    BLPOP, delays renewals.
    """
    is_declared = getattr(client, "single_connection_client", None) is True  # asyncio
    return is_declared or hasattr(getattr(client, "connection", None), "read_response")


def refuse_without_pipelines(client: Any) -> None:
    """Refuse options that need several commands on one connection.

    Raises:
        ConfigurationError: the client has no pipelines.
    """
    if not has_pipelines(client):
        raise ConfigurationError(
            f"{type(client).__name__} has no pipeline, which is needed to send commands over one "
            "connection (replicas=…, release_method='native'): add one, or use the wrapped client"
        )


def pipelined(client: Any, commands: Sequence[tuple[Any, ...]]) -> Any:
    """A pipeline of commands; in a cluster, WAIT is sent to the node of the first command."""
    pipeline, options = client.pipeline(transaction=False), undecoded(client)
    for command in commands:
        target = _target(client, command, commands[0])
        pipeline.execute_command(*encoded(command), **options, **target)
    return pipeline


def _target(client: Any, command: tuple[Any, ...], first: tuple[Any, ...]) -> dict[str, Any]:
    """The option that names the cluster node of a command in a pipeline.

    Without it a blocking client asks its default node for the keys of each script, so no script is
    run anywhere while that node does not reply. After a MOVED it follows the redirection.
    """
    if not hasattr(client, "nodes_manager"):
        return {}
    if command[0] == "WAIT":
        return {"target_nodes": client.get_node_from_key(first[3])}
    if command[0] not in ("EVALSHA", "EVAL"):
        return {}
    nodes = client.nodes_manager.slots_cache.get(slot_of(command[3]))
    return {"target_nodes": nodes[0]} if nodes else {}


def disconnect(client: Any, command: tuple[Any, ...] | None = None) -> None:
    """Drop the idle connections of a blocking client, never those that the program uses.

    Of a cluster client: those to the node of ``command``, or to all nodes.
    """
    for pool in pools_of(client, command):
        drop = _library_method(pool, "disconnect")
        if hasattr(getattr(getattr(pool, "pool", None), "queue", None), "__setitem__"):
            _disconnect_queued(pool)
        elif drop is not None and "inuse_connections" in inspect.signature(drop).parameters:
            drop(inuse_connections=False)


def _library_method(pool: Any, name: str) -> Any:
    """A method of a pool as its library has it: a subclass of the program may lack arguments."""
    for kind in type(pool).__mro__:
        if kind.__module__.partition(".")[0] in CLIENTS and name in kind.__dict__:
            return kind.__dict__[name].__get__(pool)
    return getattr(pool, name, None)


def _disconnect_queued(pool: Any) -> None:
    """Disconnect the connections in the queue of a pool, which are the idle ones.

    ``BlockingConnectionPool.disconnect`` of redis-py 5 and of valkey-py also drops those in use,
    and of redis-py 8 those that another thread takes meanwhile. So all are replaced at once by what
    lets the pool open another: no thread gets one of them, and a signal handler waits for none.
    Queues of gevent and eventlet have no mutex: no greenlet runs between these lines. A mutex that
    an interrupted thread has not released stops all use of the pool, also of its connections.
    """
    taken, queued = [], pool.pool.queue
    mutex = getattr(pool.pool, "mutex", None)
    if mutex is not None and not mutex.acquire(timeout=_LONGEST_WAIT_FOR_MUTEX):
        return
    try:
        for place, connection in enumerate(queued):
            if connection is not None:
                taken.append(connection)
                queued[place] = None
    finally:
        if mutex is not None:
            mutex.release()
    for connection in taken:
        connection.disconnect()
        with suppress(AttributeError, ValueError):
            pool._connections.remove(connection)


async def disconnect_idle(client: Any) -> None:
    """Drop the idle connections of an asyncio client; not of a cluster, nor without a pool."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None and not hasattr(client, "nodes_manager"):
        await pool.disconnect(inuse_connections=False)
