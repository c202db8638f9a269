"""Redis clients, told apart by what they can do."""

from __future__ import annotations

import inspect
import itertools
from types import FunctionType
from typing import Any

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.world.lane import Lane


class Facts:
    """What is known of one client in this process, found out once.

    Attributes:
        slotted: it is a cluster's.
        plain: its unwrapped ``execute_command``; another one there means that it is traced.
        lane: connections of our own like its pool's; None if it must be asked itself.
        serials: numbers for requests; a stale reply never carries the number of a later one.
        held: the claims held through it, by key.
    """

    __slots__ = ("held", "lane", "plain", "serials", "slotted")

    def __init__(self, client: Any) -> None:
        pool = getattr(client, "connection_pool", None)
        self.slotted = hasattr(client, "nodes_manager") or hasattr(pool, "nodes")
        self.plain = _plain_execute(client)
        own = self.plain is not None and not self.slotted and _is_plain_pool(client, pool)
        self.lane = Lane() if own else None
        self.serials = itertools.count(1)
        self.held: dict[bytes, Claim] = {}


def refuse_unfit(client: Any) -> None:
    """Refuse what is no client, or an asyncio client in blocking code."""
    execute = getattr(client, "execute_command", None)
    if not callable(execute):
        raise ConfigurationError(
            f"{type(client).__name__} is no Redis client: it has no execute_command"
        )
    if inspect.iscoroutinefunction(execute):
        raise ConfigurationError(
            f"{type(client).__module__}.{type(client).__name__} is an asyncio client, but this "
            "code is blocking: give a blocking client"
        )


def _plain_execute(client: Any) -> FunctionType | None:
    """The client library's own ``execute_command``, if nobody overrode or wrapped it."""
    function = getattr(client.execute_command, "__func__", None)
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return None
    home = function.__module__.partition(".")[0]
    known = home in ("redis", "valkey") and function.__name__ == "execute_command"
    return function if known else None


def _is_plain_pool(client: Any, pool: Any) -> bool:
    if getattr(client, "connection", None) is not None or getattr(pool, "cache", None) is not None:
        return False
    kind = getattr(pool, "connection_class", None)
    home = getattr(kind, "__module__", "").partition(".")[0]
    return home in ("redis", "valkey")
