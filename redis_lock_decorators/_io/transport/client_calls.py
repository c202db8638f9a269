"""Requests by a blocking client's own methods: of a cluster client, or of a wrapped one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.client_methods import (
    disconnect,
    has_pipelines,
    has_single_connection,
    pipelined,
    undecoded,
)
from redis_lock_decorators._io.transport.encoding import encoded


def replies_of(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands to one server and return their replies; an error reply is an item.

    If it replies that it is not the master, the client's idle connections to it are dropped: after
    a failover behind one address, new connections may reach the new master.
    """
    is_alone = len(commands) == 1 and not has_single_connection(client)
    replies = [_one(client, commands[0])] if is_alone else _many(client, commands)
    if any(map(client_errors.is_elsewhere, replies)):
        disconnect(client, commands[0])
    return replies


def _one(client: Any, command: tuple[Any, ...]) -> Any:
    try:
        return client.execute_command(*encoded(command), **undecoded(client))
    except Exception as error:
        return client_errors.meant(client, error)


def _many(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    if not has_pipelines(client):
        return [_one(client, command) for command in commands]
    try:
        replies: list[Any] = pipelined(client, commands).execute(raise_on_error=False)
    except Exception as error:
        failure = client_errors.meant(client, error)
        raise failure from failure.__cause__
    return replies
