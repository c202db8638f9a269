"""Connections that a library opened and failed to set up: they are closed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redis_lock_decorators._io.client_errors import home
from redis_lock_decorators._io.client_methods import disconnect
from redis_lock_decorators._io.error_replies import is_reply
from redis_lock_decorators._io.hook_errors import is_caught_by_library, is_raised_by_library

#: How many causes of an error are looked at.
MAX_CAUSES = 10


def drop_unconfigured(client: Any, error: BaseException) -> None:
    """Drop the idle connections of a blocking client if one may be open, but not set up.

    A library closes a connection whose set-up fails only if the error is its own. After that of a
    credential provider or of a signal handler, its pool has a connection that would send the next
    request without authentication, and to database 0.
    """
    if may_leave_unconfigured(client, error):
        disconnect(client)


def drop_unconfigured_idle(client: Any, error: BaseException) -> None:
    """``drop_unconfigured`` for an asyncio client, where a cancellation also has this effect.

    It does not wait: another task could use the connection meanwhile.
    """
    if not may_leave_unconfigured(client, error):
        return
    for connection in _idle_of(client):
        writer = getattr(connection, "_writer", None)
        if writer is not None:
            connection._reader = connection._writer = None
            with suppress(RuntimeError):  # the event loop is closed
                writer.close()


def _idle_of(client: Any) -> list[Any]:
    """The idle connections of an asyncio client of redis-py or valkey-py, as far as it has any."""
    if not hasattr(client, "nodes_manager"):
        return list(getattr(getattr(client, "connection_pool", None), "_available_connections", ()))
    return [idle for node in client.get_nodes() for idle in getattr(node, "_free", ())]


def may_leave_unconfigured(client: object, error: BaseException) -> bool:
    """Whether an error may come from the set-up of a connection that the library left open.

    It leaves it open after errors that are not its own. A wrapped client may have turned one of
    these into an error of the library: then that was raised by other code, or it has a cause that
    other code has caught, or one that is neither a socket's nor the library's.
    """
    own = {home(client), "rediscluster"}
    if own.isdisjoint(_packages(error)):
        return True
    if not is_raised_by_library(error) and not is_reply(error):
        return True
    cause = error.__cause__ or error.__context__
    for _ in range(MAX_CAUSES):
        if cause is None:
            break
        is_usual = isinstance(cause, (OSError, EOFError)) or _is_cancellation(cause)
        if not is_usual and own.isdisjoint(_packages(cause)):
            return True
        if not is_caught_by_library(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _is_cancellation(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"  # asyncio would be imported for its class


def _packages(error: BaseException) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
