"""The servers of a client, and connections to each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.client_nodes import node_of, place_of
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.lock_states import as_bytes
from redis_lock_decorators._io.transport.private_connection import opened, stop_decoding
from redis_lock_decorators._rules.keys import key_of

#: Seconds in which a server must accept a connection.
OPENING = 2.5
#: How many random names are tried to find one for each primary node.
MOST_NAMES = 20_000


@dataclass(frozen=True)
class Node:
    """A server.

    Attributes:
        address: for messages.
        kind: the class of connections to it.
        parameters: of such a connection.
        is_primary: the client sends requests of locks to it.
    """

    address: str
    kind: Any
    parameters: dict[str, Any]
    is_primary: bool = True


class Asker:
    """An open connection that returns errors of the server as replies."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ask(self, *command: Any) -> Any:
        """Send one command; return its reply or its error."""
        return self.ask_all([command])[0]

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands together; return the reply or the error of each.

        Raises:
            Exception: of the client's library; the server does not answer.
        """
        connection = self._connection
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        return [self.read() for _ in commands]

    def read(self) -> Any:
        """Wait for a reply or a message."""
        try:
            return self._connection.read_response()
        except Exception as error:
            if not error_replies.is_reply(error):
                raise
            return error


@contextmanager
def connected(node: Node) -> Iterator[Asker]:
    """Open a connection, which is closed at the end of the block.

    Raises:
        Exception: of the client's library; the server cannot be reached or refuses the user.
    """
    connection = opened(node.kind, node.parameters, monotonic() + OPENING)
    try:
        stop_decoding(connection)
        yield Asker(connection)
    finally:
        connection.disconnect()


def refuse_other(error: Exception) -> None:
    """Raise an error again that is neither of a client's library nor of a socket."""
    if not client_errors.is_outcome(error):
        raise error


def is_cluster(client: Any) -> bool:
    """Whether it is a cluster client."""
    return hasattr(client, "nodes_manager")


def nodes_of(client: Any) -> list[Node]:
    """The servers of a client, primary nodes first; none if it has no pool that is known."""
    if is_cluster(client):
        nodes = sorted(client.get_nodes(), key=lambda node: node.server_type != "primary")
        return [_node_of_cluster(client, node) for node in nodes]
    pool: Any = getattr(client, "connection_pool", None)
    if not hasattr(pool, "connection_class") or hasattr(pool, "nodes"):
        return []
    return [Node(place_of(client), pool.connection_class, dict(pool.connection_kwargs))]


def _node_of_cluster(client: Any, node: Any) -> Node:
    pool = client.get_redis_connection(node).connection_pool
    is_primary = node.server_type == "primary"
    return Node(node.name, pool.connection_class, dict(pool.connection_kwargs), is_primary)


def trial_names(client: Any, prefix: str, nodes: Sequence[Node]) -> dict[str, str]:
    """Return a random lock name for each primary node, by the address of the node."""
    primaries = [node.address for node in nodes if node.is_primary]
    if not is_cluster(client):
        return dict.fromkeys(primaries, random_name())
    found: dict[str, str] = {}
    for _ in range(MOST_NAMES):
        name = random_name()
        address = node_of(client, ("", key_of(prefix, name)))
        if address in primaries:
            found.setdefault(str(address), name)
        if len(found) == len(primaries):
            break
    return found


def random_name() -> str:
    """The name of a throw-away lock."""
    return f"redis-lock:doctor:{os.urandom(8).hex()}"


def parsed_info(reply: Any) -> dict[str, str]:
    """The fields of a reply to INFO."""
    lines = as_bytes(reply).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and line[0] != "#")
