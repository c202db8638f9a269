"""Clients are checked at the door: what is none, and those of the other world, are refused."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Literal, NoReturn

from redis_lock_decorators.errors import ConfigurationError

_MADE = ("redis.Redis.from_url(…)", "redis.asyncio.Redis.from_url(…)")
_LIBRARIES = frozenset(("redis", "valkey"))
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
    found = _world_of(kind)
    if found is None or found == "untold":
        if client is None or hasattr(kind, "__getattr__"):
            return
        if found is None:
            refuse_unfit(client, bool(awaited))
        found = _world_by_pool(client)
    if awaited is not None and found is (not awaited):
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
    if _is_coroutine_function(getattr(client, "execute_command", None)):
        return True
    kind: Any = type(client)
    found = _world_of(kind)
    return found if isinstance(found, bool) else bool(_world_by_pool(client))


def refuse_misplaced(lock_name: object, get_lock_name: object) -> None:
    """Refuse a client that was given where a name belongs, as other libraries have it.

    Raises:
        ConfigurationError: it was, with the cure.
    """
    for thing in (lock_name, get_lock_name):
        kind: Any = thing if isinstance(thing, type) else type(thing)
        if _world_of(kind) is not None:
            raise ConfigurationError(
                f"{_named(thing)} was given where a lock's name belongs: give the name first and "
                'the client by keyword, as in RedisLock("name", client=client)'
            )


@lru_cache(maxsize=64)
def _world_of(kind: type) -> bool | Literal["untold"] | None:
    """Whether the clients of a class are asyncio's, as far as the class tells it.

    An ``execute_command`` that is no coroutine function may return an awaitable all the same, so
    the class that it overrides is asked as well.

    Returns:
        "untold" if only a client itself can tell; None if the objects of the class are no clients.
    """
    if not callable(getattr(kind, "execute_command", None)) or hasattr(kind, "master_for"):
        return None
    if any(_is_coroutine_function(vars(base).get("execute_command")) for base in kind.__mro__):
        return True
    libraries = {base.__module__.partition(".")[0] for base in kind.__mro__}
    # Tracing may have replaced the method in the library's own asyncio class.
    is_blocking = hasattr(kind, "__enter__") and not hasattr(kind, "__aenter__")
    return False if is_blocking and not _LIBRARIES.isdisjoint(libraries) else "untold"


def _world_by_pool(client: Any) -> bool | None:
    """Whether a client's connections are asyncio's; None if it has none, or none yet."""
    try:
        disconnect = client.connection_pool.disconnect
    except Exception:  # what the client is made of may come later
        return None
    return _is_coroutine_function(disconnect)


def _is_coroutine_function(function: Any) -> bool:
    """Whether it, or what it wraps by ``functools.wraps``, is an ``async def``."""
    if inspect.iscoroutinefunction(function):
        return True
    wraps = inspect.isroutine(function) and hasattr(function, "__wrapped__")
    return wraps and inspect.iscoroutinefunction(inspect.unwrap(function))


def _refuse_world(client: object, awaited: bool) -> NoReturn:
    raise ConfigurationError(
        f"{_named(client)} is {_WORLDS[not awaited]} client, but this code needs "
        f"{_WORLDS[awaited]} one: {_INSTEAD[awaited]}"
    )


def _named(thing: object) -> str:
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__name__}"
