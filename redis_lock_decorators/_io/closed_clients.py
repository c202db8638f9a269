"""Detection of closed asyncio clients, by the private attributes of their libraries."""

from __future__ import annotations

import contextlib
from typing import Any

from redis_lock_decorators._io.client_methods import disconnect_idle


def is_closed(client: Any) -> bool:
    """Whether a client had connections, and all are closed."""
    nodes = _nodes(client)
    if nodes is not None:
        return bool(nodes) and bool(getattr(client, "_initialize", False))
    connections = [*_idle(client), *_used(client)]
    return bool(connections) and not any(map(_is_open, connections))


async def close_unused(client: Any) -> None:
    """Close the connections of a client that are not in use."""
    nodes = _nodes(client)
    with contextlib.suppress(Exception):
        if nodes is None:
            await disconnect_idle(client)
        elif not any(len(node._free) < len(node._connections) for node in nodes):
            await getattr(client, "aclose", client.close)()


def _nodes(client: Any) -> list[Any] | None:
    """The known nodes of a cluster client; None for other clients."""
    manager = getattr(client, "nodes_manager", None)
    return None if manager is None else list(getattr(manager, "nodes_cache", {}).values())


def _idle(client: Any) -> list[Any]:
    return list(getattr(_pool(client), "_available_connections", ()))


def _used(client: Any) -> list[Any]:
    return list(getattr(_pool(client), "_in_use_connections", ()))


def _pool(client: Any) -> Any:
    """The pool of a client; None if it wraps a client and has no such attribute."""
    return getattr(client, "connection_pool", None)


def _is_open(connection: Any) -> bool:
    return getattr(connection, "_reader", None) is not None
