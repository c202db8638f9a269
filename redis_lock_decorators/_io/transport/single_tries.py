"""Requests to a cluster that the client must not repeat, because the slot of their keys is moving.

A node answers a script over several keys of such a slot with TRYAGAIN. The methods of cluster
clients repeat the script up to 16 times, in 0.4 to 0.8 seconds, before they report that, and other
requests to the node wait meanwhile. A flow continues key by key, so one try is enough. These
methods also fail if a slot is imported by a node that serves no slots yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.client_methods import pipelined, undecoded
from redis_lock_decorators._io.client_nodes import has_nodes, known_node
from redis_lock_decorators._io.client_state import plain_execute
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.encoding import encoded
from redis_lock_decorators._rules.keys import slot_of

#: How often a command follows redirections before the client's own method finds its node.
MAX_REDIRECTIONS = 4
#: The commands that are sent directly to their node, by the position of their first key.
_KEYS = {"EVALSHA": 3, "EVAL": 3, "GET": 1, "SET": 1, "HDEL": 1, "ZSCORE": 1}


def is_due(client: Any, command: tuple[Any, ...]) -> bool:
    """Whether to send a command directly to its node.

    A method that the program has wrapped gets all requests that are sent alone.
    """
    return (
        command[0] in _KEYS
        and hasattr(client, "nodes_manager")
        and plain_execute(client) is not None
    )


def master(client: Any, command: tuple[Any, ...]) -> Any:
    """The node that serves the keys of a command; None if the client does not know it."""
    nodes = client.nodes_manager.slots_cache.get(slot_of(command[_KEYS[command[0]]]))
    return nodes[0] if nodes else None


def redirected(replies: Sequence[Any]) -> list[int]:
    """The positions of replies that another node has to give."""
    return [
        number
        for number, reply in enumerate(replies)
        if isinstance(reply, Exception) and error_replies.is_redirection(reply)
    ]


class Target(NamedTuple):
    """The node to which commands are redirected.

    Attributes:
        asks: whether it still imports their slots (ASK), so that ASKING precedes each command.
    """

    host: str
    port: int
    asks: bool

    def pipeline(self, client: Any, commands: Sequence[tuple[Any, ...]]) -> Any:
        """A pipeline of commands to this node."""
        if not hasattr(client, "nodes_manager"):  # it has no option for that, but knows the node
            return pipelined(client, commands)
        node = known_node(client, self.host, self.port)
        pipeline, options = client.pipeline(transaction=False), undecoded(client)
        for command in commands:
            if self.asks:
                pipeline.execute_command("ASKING", target_nodes=node)
            pipeline.execute_command(*encoded(command), target_nodes=node, **options)
        return pipeline

    def replies(self, found: Sequence[Any]) -> list[Any]:
        """The replies to the commands themselves."""
        return list(found[1::2] if self.asks else found)

    def is_left(self, error: Exception) -> bool:
        """Whether the client has to look up the node of a slot again after an error."""
        return not self.asks and client_errors.is_broken(error)


def target(client: Any, reply: Any) -> Target | None:
    """The node that a redirection names; None if only the client's own method finds it."""
    asks = error_replies.is_ask(reply)
    is_followed = hasattr(client, "nodes_manager") if asks else has_nodes(client)
    return Target(reply.host, reply.port, asks) if is_followed and reply.host else None


def address(reply: Any) -> object:
    """The address that a redirection names."""
    return reply.host, reply.port


def by_target(client: Any, replies: Sequence[Any]) -> dict[Target, list[int]]:
    """The nodes that redirections name, each with the positions of the replies it has to give."""
    found: dict[Target, list[int]] = {}
    for number in redirected(replies):
        node = target(client, replies[number])
        if node is not None:
            found.setdefault(node, []).append(number)
    return found


def moved(client: Any, replies: Sequence[Any]) -> list[Any]:
    """The replies that name the new node of a slot, which a cluster client remembers."""
    found = [replies[number] for number in redirected(replies)]
    named = [reply for reply in found if reply.host and not error_replies.is_ask(reply)]
    return named if named and has_nodes(client) else []


async def one_by_one(
    send: Callable[[Sequence[tuple[Any, ...]], float], Awaitable[list[Any]]],
    commands: Sequence[tuple[Any, ...]],
    until: float,
    no_reply: Callable[[], Exception],
) -> list[Any]:
    """Send commands one after another; if the time runs out, the replies that arrived count."""
    replies: list[Any] = []
    for command in commands:
        if replies and monotonic() >= until:
            replies.append(client_errors.mark_unsent(no_reply()))
            continue
        try:
            replies += await send([command], until)
        except Exception as error:
            if not replies:
                raise
            replies.append(error)
    return replies
