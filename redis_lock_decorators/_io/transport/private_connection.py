"""Connections of our own, made like those of a client."""

from __future__ import annotations

import inspect
from typing import Any

from redis_lock_decorators._flow.requests import OUTAGE
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic

#: The longest wait for a reply, in seconds: half of an outage, so that there is time for another
#: try on another connection.
PATIENCE = OUTAGE / 2
#: What redis-py 8 adds to be told of maintenance; it needs RESP3 and a pool.
_OTHERS = ("maint_", "orig_", "oss_cluster_maint_")
#: What redis-py tells the server about itself, in a round trip each.
_INTRODUCTION = ("driver_info", "lib_name", "lib_version")


def made(kind: Any, parameters: dict[str, Any]) -> Any:
    """A connection like those of a pool, not opened yet.

    In RESP2, where messages are plain replies and opening takes a round trip less; texts stay
    bytes, for what lies in a key may be no text; and it never sends a PING by itself, whose reply
    would be read as another's. To open it is tried once.
    """
    own = {name: value for name, value in parameters.items() if not name.startswith(_OTHERS)}
    own["decode_responses"] = False
    try:
        connection = kind(**{**own, "protocol": 2})
    except TypeError:  # before redis-py 5 there was no other
        connection = kind(**own)
    connection.health_check_interval = 0
    for fact in _INTRODUCTION:
        if hasattr(connection, fact):
            setattr(connection, fact, None)
    if hasattr(connection, "retry"):  # not before redis-py 4
        connection.retry = once(connection)
    return connection


def opened(kind: Any, parameters: dict[str, Any], until: float) -> Any:
    """A connection like those of a pool, of a blocking client, opened by ``until``.

    It is tried once. The error of one that cannot be opened is marked: no request has left.
    """
    connection = made(kind, parameters)
    patience = min(connection.socket_timeout or PATIENCE, PATIENCE)
    try:
        _limit(connection, min(PATIENCE, max(0.001, until - monotonic())))
        connection.connect()
    except BaseException as error:
        connection.disconnect()
        client_errors.unsent(error)
        raise
    connection.socket_timeout = patience
    return connection


def _limit(connection: Any, seconds: float) -> None:
    for limit in ("socket_timeout", "socket_connect_timeout"):
        if hasattr(connection, limit):  # a Unix socket lacks the second
            setattr(connection, limit, min(getattr(connection, limit) or seconds, seconds))


def once(connection: Any) -> Any:
    """A policy to try but once: flows try again, and know for how long."""
    is_async = inspect.iscoroutinefunction(connection.connect)
    retry = client_errors.part_of(connection, "asyncio.retry" if is_async else "retry")
    return retry.Retry(client_errors.part_of(connection, "backoff").NoBackoff(), 0)
