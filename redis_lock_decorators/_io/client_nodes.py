"""The servers of a client: cluster nodes, and addresses."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from redis_lock_decorators._io.client_errors import part_of
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
        nodes = client.nodes_manager.slots_cache.get(slot_of(first_key(command)), ())[:1]
    found = [getattr(node, _node_attribute(node)) for node in nodes]
    return [client.connection_pool for client in found if client is not None]


def node_client(client: Any, node: Any) -> Any:
    """The client of one node of a blocking cluster client."""
    return getattr(client, f"get_{_node_attribute(node)}")(node)


def _node_attribute(node: Any) -> str:
    return "valkey_connection" if hasattr(node, "valkey_connection") else "redis_connection"


def node_of(client: Any, command: tuple[Any, ...]) -> object:
    """The identity of the cluster node that a command is sent to; None if it is not known yet."""
    key = first_key(command)
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
    pool = node_client(client, node).connection_pool
    return pool.connection_class, dict(pool.connection_kwargs)


def known_node(client: Any, host: str, port: int) -> Any:
    """The cluster node that a reply names; None without a host.

    A node that serves no slots yet is not listed by CLUSTER SLOTS. It is added to the client's
    nodes, as the client itself does after a MOVED.
    """
    manager = client.nodes_manager
    if not host:
        return None
    host, port = manager.remap_host_port(host, port)
    found = client.get_node(host, port)
    if found is None:
        if hasattr(manager, "create_redis_node") or hasattr(manager, "create_valkey_node"):
            found = part_of(client, "cluster").ClusterNode(host, port, "primary")
        else:
            kind = part_of(client, "asyncio.cluster").ClusterNode
            found = kind(host, port, "primary", **manager.connection_kwargs)
        manager.nodes_cache[found.name] = found
    return found


def has_nodes(client: Any) -> bool:
    """Whether a client knows the nodes of a cluster; one of a single node does not."""
    if hasattr(client, "nodes_manager"):
        return True
    return hasattr(getattr(client, "connection_pool", None), "nodes")  # redis-py-cluster


def note_moved(client: Any, reply: Any) -> Any:
    """Let a cluster client remember the node that a MOVED names, as its own methods do.

    Those would also look up all nodes after every fifth MOVED. With asyncio that closes connections
    that are in use.

    Returns:
        What is to be awaited, with asyncio and redis-py 8.
    """
    slot = reply.slot_id
    if not hasattr(client, "nodes_manager"):
        nodes = client.connection_pool.nodes
        node = nodes.set_node(reply.host, reply.port, server_type="master")
        nodes.slots[slot] = [node, *nodes.slots.get(slot, ())[1:]]
        return None
    manager, node = client.nodes_manager, known_node(client, reply.host, reply.port)
    known = manager.slots_cache.get(slot)
    if node is None or not known or known[0] is node:
        return None
    found = SimpleNamespace(host=node.host, port=node.port, slot_id=slot)
    with suppress(LookupError):  # another thread has just replaced the nodes
        if hasattr(manager, "move_slot"):
            return manager.move_slot(found)
        # redis-py 5 and 6, valkey-py
        manager._moved_exception = found
        manager.get_node_from_slot(slot)
    return None


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


def first_key(command: tuple[Any, ...]) -> bytes:
    """The key, or the first key, of a command."""
    key: bytes = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    return key
