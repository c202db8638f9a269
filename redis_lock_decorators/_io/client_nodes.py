"""The servers of a client: cluster nodes, and addresses."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._rules.keys import slot_of


def pools_of(client: Any, command: tuple[Any, ...] | None = None) -> list[Any]:
    """The connection pools of a blocking client.

    Of a cluster client: that of the node of ``command``, none if it is not known, or all (None).
    """
    if not hasattr(client, "nodes_manager"):
        pool = getattr(client, "connection_pool", None)  # a wrapper may have none
        return [] if pool is None else [pool]
    if command is None:
        nodes = client.get_nodes()
    else:
        nodes = client.nodes_manager.slots_cache.get(slot_of(_key_of(command)), ())[:1]
    return [
        node.redis_connection.connection_pool for node in nodes if node.redis_connection is not None
    ]


def node_of(client: Any, command: tuple[Any, ...]) -> object:
    """The identity of the cluster node that a command is sent to; None if it is not known yet."""
    key = _key_of(command)
    if hasattr(client, "nodes_manager"):
        nodes = client.nodes_manager.slots_cache.get(slot_of(key))
        return nodes[0].name if nodes else None
    nodes = client.connection_pool.nodes.slots.get(slot_of(key))
    return nodes[0]["name"] if nodes else None


def address_of(client: Any, key: bytes) -> tuple[Any, dict[str, Any]]:
    """The class and the parameters of connections to the node of a key."""
    if not hasattr(client, "nodes_manager"):
        pool = client.connection_pool
        if not hasattr(pool, "nodes"):
            return pool.connection_class, dict(pool.connection_kwargs)
        node = pool.nodes.slots[slot_of(key)][0]
        address = {"host": node["host"], "port": node["port"]}
        return pool.connection_class, {**pool.connection_kwargs, **address}
    node = client.get_node_from_key(key)
    if hasattr(node, "connection_kwargs"):  # of an asyncio cluster client
        return node.connection_class, dict(node.connection_kwargs)
    pool = client.get_redis_connection(node).connection_pool
    return pool.connection_class, dict(pool.connection_kwargs)


def place_of(client: Any) -> str:
    """The address of a client's server for error messages, without a password."""
    try:
        if hasattr(client, "nodes_manager"):
            return f"a cluster of {len(client.nodes_manager.nodes_cache)} known nodes"
        pool = client.connection_pool
        if hasattr(pool, "service_name"):
            return f"the master of {pool.service_name!r:.80}"
        found = pool.connection_kwargs
        return str(found.get("path") or f"{found['host']}:{found['port']}")
    except Exception:  # a wrapper need not have these attributes
        return f"the server of {type(client).__name__}"


def _key_of(command: tuple[Any, ...]) -> bytes:
    key: bytes = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    return key
