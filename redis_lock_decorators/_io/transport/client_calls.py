"""Requests by a blocking client's own methods: of a cluster client, or of a wrapped one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.client_methods import (
    disconnect,
    has_pipelines,
    has_single_connection,
    pipelined,
    undecoded,
)
from redis_lock_decorators._io.client_nodes import has_nodes, node_client, node_of, note_moved
from redis_lock_decorators._io.node_lookups import look_up_nodes
from redis_lock_decorators._io.transport import single_tries
from redis_lock_decorators._io.transport.encoding import encoded
from redis_lock_decorators._io.unconfigured import drop_unconfigured


def replies_of(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands to one server and return their replies; an error reply is an item."""
    return followed(client, commands, own_replies_of(client, commands))


def own_replies_of(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """``replies_of``, with redirections to other nodes of a cluster as items.

    If it replies that it is not the master, the client's idle connections to it are dropped: after
    a failover behind one address, new connections may reach the new master.
    """
    is_alone = len(commands) == 1 and not has_single_connection(client)
    replies = [_one(client, commands[0])] if is_alone else _many(client, commands)
    if any(map(error_replies.is_elsewhere, replies)):
        disconnect(client, commands[0])
    return _noted(client, replies)


def _one(client: Any, command: tuple[Any, ...]) -> Any:
    """The reply to a command that is sent alone."""
    node = single_tries.is_due(client, command) and single_tries.master(client, command)
    if not node:
        return _call(client, client.execute_command, command)
    reply = _call(client, partial(_execute_at, client, node), command)
    if client_errors.is_broken(reply):
        look_up_nodes(client, node.name)
        return _call(client, client.execute_command, command)
    return reply


def _execute_at(client: Any, node: Any, *words: Any, **options: Any) -> Any:
    return node_client(client, node).execute_command(*words, **options)


def _call(client: Any, execute: Callable[..., Any], command: tuple[Any, ...]) -> Any:
    try:
        return execute(*encoded(command), **undecoded(client))
    except BaseException as error:
        return _failure(client, error)


def _failure(client: Any, error: BaseException) -> Exception:
    drop_unconfigured(client, error)
    return client_errors.failure(client, error)


def _many(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    if not has_pipelines(client):
        return [_one(client, command) for command in commands]
    try:
        replies = _executed(pipelined(client, commands))
    except BaseException as error:
        failure = _failure(client, error)
        raise failure from failure.__cause__
    if any(map(client_errors.is_broken, replies)) and has_nodes(client):
        look_up_nodes(client, node_of(client, commands[0]))
    return replies


def _executed(pipeline: Any) -> list[Any]:
    """The replies to the commands of a pipeline; that of a cluster follows no redirections."""
    if not hasattr(pipeline, "send_cluster_commands"):
        return list(pipeline.execute(raise_on_error=False))
    # ``execute`` has no option for that.
    queue = pipeline.command_stack or pipeline._execution_strategy.command_queue
    options = {"raise_on_error": False, "allow_redirections": False}
    return list(pipeline.send_cluster_commands(queue, **options))


def followed(client: Any, commands: Sequence[tuple[Any, ...]], replies: list[Any]) -> list[Any]:
    """The replies, with those of other nodes in place of redirections."""
    for _ in range(single_tries.MAX_REDIRECTIONS):
        for target, numbers in single_tries.by_target(client, replies).items():
            try:
                found = replies_at(client, target, [commands[number] for number in numbers])
            except Exception as error:
                found = [client_errors.own_copy(error) for _ in numbers]
            for number, reply in zip(numbers, found, strict=True):
                replies[number] = reply
    for number in single_tries.redirected(replies):
        (replies[number],) = replies_by_own_method(client, [commands[number]])
    return replies


def replies_at(
    client: Any, target: single_tries.Target, commands: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """The replies of the node to which commands are redirected; it may redirect them again."""
    try:
        found = _executed(target.pipeline(client, commands))
    except BaseException as error:
        failure = _failure(client, error)
        if len(commands) == 1 and target.is_left(failure):
            return replies_by_own_method(client, commands)
        raise failure from failure.__cause__
    return _noted(client, target.replies(found))


def replies_by_own_method(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The replies to commands by the client's own method, which finds their nodes."""
    return [_call(client, client.execute_command, command) for command in commands]


def _noted(client: Any, replies: list[Any]) -> list[Any]:
    """The same replies; the client remembers where slots have moved."""
    for reply in single_tries.moved(client, replies):
        note_moved(client, reply)
    return replies
