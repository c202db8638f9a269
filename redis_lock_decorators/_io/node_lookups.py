"""Lookups of the nodes of a cluster after one of them has given no reply.

The methods of cluster clients look up the nodes when a reply is as late as their connections allow.
They cannot if a request is ended before, and they do not after a pipeline: without a lookup all
later requests would go to a node that another one has replaced.
"""

from __future__ import annotations

import inspect
from typing import Any

from redis_lock_decorators._io.client_nodes import has_nodes
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.timeouts import timeout

#: The longest lookup that a task waits for, in seconds: the other nodes reply at once.
LONGEST_LOOKUP = 0.5


def look_up_nodes(client: Any, silent: object) -> None:
    """Let a blocking cluster client look up its nodes, as one gave no reply: it is asked last.

    If the lookup fails, the next request without a reply causes another one.

    Args:
        client: the client; nothing is done for one that is not of a cluster.
        silent: the name of that node, or a tuple that begins with its host and port.
    """
    if has_nodes(client):
        try:
            _lookup(client, silent)
        except Exception as error:
            if is_of_handler(error):
                raise


async def look_up_nodes_in_task(client: Any, silent: object) -> None:
    """``look_up_nodes`` for an asyncio client."""
    if has_nodes(client):
        try:
            async with timeout(LONGEST_LOOKUP):
                await _lookup(client, silent)
        except Exception as error:
            if is_of_handler(error):
                raise


def _lookup(client: Any, silent: object) -> Any:
    if not hasattr(client, "nodes_manager"):
        return client.connection_pool.nodes.initialize()  # redis-py-cluster
    manager = client.nodes_manager
    name = f"{silent[0]}:{silent[1]}" if isinstance(silent, tuple) else silent
    if "last_failed_node_name" in inspect.signature(manager.initialize).parameters:
        return manager.initialize(last_failed_node_name=name)
    # Before redis-py 8, and in valkey-py, nodes are asked in this order.
    asked_last = {name: manager.startup_nodes[name]} if name in manager.startup_nodes else {}
    others = {key: node for key, node in manager.startup_nodes.items() if key != name}
    manager.startup_nodes = {**others, **asked_last}
    return manager.initialize()
