"""Clients are checked at the door: what is none, and those of the other world, are refused."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, NoReturn

from redis_lock_decorators.errors import ConfigurationError

_MADE = ("redis.Redis.from_url(…)", "redis.asyncio.Redis.from_url(…)")
_WORLDS = ("a blocking", "an asyncio")
_INSTEAD = (
    "give one of redis.Redis, or use it in an async function or with redis_lock_decorators.asyncio",
    "give one of redis.asyncio.Redis, or use it in a function that is not async",
)


def refuse_at_door(client: Any, awaited: bool | None) -> None:
    """Refuse what certainly is no client, or one of the other world, before it is used.

    What gets its attributes from elsewhere, such as an application's extension, is checked when it
    is used: it may have no client yet.

    Args:
        client: what was given as one; None for nothing.
        awaited: whether an asyncio client is needed; None if that is not known yet.

    Raises:
        ConfigurationError: it cannot be used, with the cure.
    """
    kind: Any = type(client)
    found = _is_awaited(kind)
    if found is None:
        if client is not None and not hasattr(kind, "__getattr__"):
            refuse_unfit(client, bool(awaited))
    elif awaited is not None and found is not awaited:
        _refuse_world(client, awaited)


def refuse_unfit(client: Any, awaited: bool) -> None:
    """Refuse what is no client, or a client of the other world, when it is used.

    Raises:
        ConfigurationError: it cannot be used, with the cure.
    """
    if inspect.isclass(client):
        raise ConfigurationError(
            f"{client.__name__} is a class: make a client of it, as in {_MADE[awaited]}"
        )
    if inspect.iscoroutine(client):
        client.close()
        raise ConfigurationError(
            "the factory is an async function: give a plain one, for a client of redis.asyncio "
            "is made without await"
        )
    if hasattr(type(client), "master_for"):
        raise ConfigurationError(
            f"{_named(client)} finds clients, but is none: give sentinel.master_for(…)"
        )
    execute = getattr(client, "execute_command", None)
    if not callable(execute):
        raise ConfigurationError(
            f"{type(client).__name__} is no Redis client: it has no execute_command; give one, as "
            f"in {_MADE[awaited]}"
        )
    if is_awaited(client) is not awaited:
        _refuse_world(client, awaited)


def is_awaited(client: Any) -> bool:
    """Whether this is an asyncio client."""
    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


def refuse_misplaced(lock_name: object, get_lock_name: object) -> None:
    """Refuse a client that was given where a name belongs, as other libraries have it.

    Raises:
        ConfigurationError: it was, with the cure.
    """
    for thing in (lock_name, get_lock_name):
        kind: Any = thing if isinstance(thing, type) else type(thing)
        if _is_awaited(kind) is not None:
            raise ConfigurationError(
                f"{_named(thing)} was given where a lock's name belongs: give the name first and "
                'the client by keyword, as in RedisLock("name", client=client)'
            )


@lru_cache(maxsize=64)
def _is_awaited(kind: type) -> bool | None:
    """Whether the clients of a class are asyncio's; None if its objects are no clients."""
    execute = getattr(kind, "execute_command", None)
    if not callable(execute) or hasattr(kind, "master_for"):
        return None
    return inspect.iscoroutinefunction(execute)


def _refuse_world(client: object, awaited: bool) -> NoReturn:
    raise ConfigurationError(
        f"{_named(client)} is {_WORLDS[not awaited]} client, but this code needs "
        f"{_WORLDS[awaited]} one: {_INSTEAD[awaited]}"
    )


def _named(thing: object) -> str:
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__name__}"
