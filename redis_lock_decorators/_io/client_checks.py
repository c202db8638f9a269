"""Checks of clients: refuse objects that are no Redis clients, and clients of the wrong kind."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Literal, NoReturn

from redis_lock_decorators._io.client_methods import has_pipelines, has_single_connection
from redis_lock_decorators._io.plain_pools import LIBRARIES
from redis_lock_decorators.errors import ConfigurationError

_EXAMPLES = ("redis.Redis.from_url(…)", "redis.asyncio.Redis.from_url(…)")
_KINDS = ("a blocking", "an asyncio")
_INSTEAD = (
    "give one of redis.Redis, or use it in an async function or with redis_lock_decorators.asyncio",
    "give one of redis.asyncio.Redis, or use it in a function that is not async",
)
#: The ends of the names of classes whose objects clients make.
_OF_CLIENTS = ("Pipeline", "PubSub")


def refuse_early(client: Any, awaited: bool | None) -> None:
    """Refuse what is certainly no client, or one of the wrong kind, before it is used.

    An object with ``__getattr__``, such as a web framework's extension, is checked when it is used:
    it may have no client yet.

    Args:
        client: the object that was given; None if there was none.
        awaited: whether an asyncio client is needed; None if that is not known yet.

    Raises:
        ConfigurationError: it cannot be used; the message says what to do.
    """
    kind: Any = type(client)
    found = _awaited_by_class(kind)
    if found is None or found == "undecided":
        if client is None or hasattr(kind, "__getattr__"):
            return
        if found is None:
            refuse_unfit_client(client, bool(awaited))
        found = _awaited_by_pool(client)
    if awaited is not None and found is (not awaited):
        _refuse_kind(client, awaited)


def refuse_unfit_client(client: Any, awaited: bool) -> None:
    """Refuse what is no client, or a client of the wrong kind, when it is used.

    Raises:
        ConfigurationError: it cannot be used; the message says what to do.
    """
    if inspect.isclass(client):
        raise ConfigurationError(
            f"{client.__name__} is a class: give an instance, as in {_EXAMPLES[awaited]}"
        )
    if inspect.iscoroutine(client):
        client.close()
        raise ConfigurationError(
            "the function that makes the client is async: give a plain one; clients of "
            "redis.asyncio are made without await"
        )
    if hasattr(type(client), "master_for"):
        raise ConfigurationError(
            f"{_named(client)} is a Sentinel, not a client: give sentinel.master_for(…)"
        )
    if any(map(_is_of_client, type(client).__mro__)):
        raise ConfigurationError(f"{_named(client)} is no client, but made by one: give the client")
    execute = getattr(client, "execute_command", None)
    if not callable(execute):
        raise ConfigurationError(
            f"{type(client).__name__} is no Redis client: it has no execute_command; give one, as "
            f"in {_EXAMPLES[awaited]}"
        )
    if is_awaited(client) is not awaited:
        _refuse_kind(client, awaited)
    if not awaited and has_single_connection(client) and not has_pipelines(client):
        raise ConfigurationError(
            f"{_named(client)} has one connection for all commands and no pipeline, so leases "
            "cannot be renewed while the program uses it: leave out single_connection_client=True"
        )


def _is_of_client(kind: type) -> bool:
    is_of_library = kind.__module__.partition(".")[0] in LIBRARIES
    return is_of_library and kind.__name__.endswith(_OF_CLIENTS)


def is_awaited(client: Any) -> bool:
    """Whether this is an asyncio client."""
    if _is_coroutine_function(getattr(client, "execute_command", None)):
        return True
    kind: Any = type(client)
    found = _awaited_by_class(kind)
    return found if isinstance(found, bool) else bool(_awaited_by_pool(client))


def refuse_misplaced(lock_name: object, get_lock_name: object) -> None:
    """Refuse a client that was given in place of a name, as in the signatures of other libraries.

    Raises:
        ConfigurationError: it was; the message says what to do.
    """
    for thing in (lock_name, get_lock_name):
        kind: Any = thing if isinstance(thing, type) else type(thing)
        if _awaited_by_class(kind) is not None:
            raise ConfigurationError(
                f"{_named(thing)} was given where a lock's name belongs: give the name first and "
                'the client by keyword, as in RedisLock("name", client=client)'
            )


@lru_cache(maxsize=64)
def _awaited_by_class(kind: type) -> bool | Literal["undecided"] | None:
    """Whether the clients of a class are asyncio's, judged by the class alone.

    An ``execute_command`` that is no coroutine function may still return an awaitable, so the
    methods that it overrides are checked as well.

    Returns:
        "undecided" if the client itself must be checked; None if the objects are no clients.
    """
    if not callable(getattr(kind, "execute_command", None)) or hasattr(kind, "master_for"):
        return None
    if any(_is_coroutine_function(vars(base).get("execute_command")) for base in kind.__mro__):
        return True
    libraries = {base.__module__.partition(".")[0] for base in kind.__mro__}
    # Tracing may have replaced the method in the library's own asyncio class.
    is_blocking = hasattr(kind, "__enter__") and not hasattr(kind, "__aenter__")
    return False if is_blocking and not LIBRARIES.isdisjoint(libraries) else "undecided"


def _awaited_by_pool(client: Any) -> bool | None:
    """Whether a client's connections are asyncio's; None if it has none, or none yet."""
    try:
        disconnect = client.connection_pool.disconnect
    except Exception:  # a wrapper may get its client later
        return None
    return _is_coroutine_function(disconnect)


def _is_coroutine_function(function: Any) -> bool:
    """Whether it, or the function that it wraps by ``functools.wraps``, is an ``async def``."""
    if inspect.iscoroutinefunction(function):
        return True
    wraps = inspect.isroutine(function) and hasattr(function, "__wrapped__")
    return wraps and inspect.iscoroutinefunction(inspect.unwrap(function))


def _refuse_kind(client: object, awaited: bool) -> NoReturn:
    raise ConfigurationError(
        f"{_named(client)} is {_KINDS[not awaited]} client, but this code needs "
        f"{_KINDS[awaited]} one: {_INSTEAD[awaited]}"
    )


def _named(thing: object) -> str:
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__name__}"
