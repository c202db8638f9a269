"""Where a pool's connections lead now: what connections of our own beside it have to follow.

A pool closes its own connections when its client is closed, or told to connect anew, as after a
failover to another address. It knows nothing of ours, and tells nobody, so its methods that drop
connections are noted when they are called.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

#: A pool since it last dropped its connections, and the address that it connects to.
Origin = tuple[object, ...]


class _Watch:
    """What is known of a pool.

    Attributes:
        era: another object after each time that the pool dropped connections.
    """

    __slots__ = ("era",)

    def __init__(self) -> None:
        self.era = object()


def origin(pool: Any) -> Origin:
    """Where a blocking client's pool leads: another one, or after it dropped its own, differs."""
    watch = getattr(getattr(pool, "disconnect", None), "lock_watch", None)
    era = watch.era if watch is not None else _watched(pool)
    return era, *_address(pool)


def task_origin(pool: Any) -> Origin:
    """The same for an asyncio client's pool, of which nobody knows whether it dropped its own."""
    return pool, *_address(pool)


def is_elsewhere(connection: Any, pool: Any) -> bool:
    """Whether a Sentinel pool has learned of another master since the connection was opened."""
    master = getattr(pool, "master_address", None)
    return master is not None and (connection.host, connection.port) != master


def _address(pool: Any) -> Origin:
    get = pool.connection_kwargs.get
    return get("host"), get("port"), get("db"), get("path")


def _watched(pool: Any) -> object:
    """The era of a pool whose methods are noted from now on; the pool itself where none can be."""
    try:
        methods = vars(pool)
        new = _noted(pool, "disconnect", _Watch())
        found = methods.setdefault("disconnect", new)  # another thread may be first
        if not hasattr(found, "lock_watch"):  # somebody's own
            found = methods["disconnect"] = new
        watch: _Watch = found.lock_watch
        methods["reset"] = _noted(pool, "reset", watch)
    except (AttributeError, TypeError):
        return pool
    return watch.era


def _noted(pool: Any, name: str, watch: _Watch) -> Any:
    """A pool's method whose calls are noted.

    It refers to its pool, as bound methods do: a client may call it when both are being collected,
    and nothing that is weak leads anywhere then.
    """
    usual = getattr(pool, name)

    @wraps(usual)
    def noted(*args: Any, **options: Any) -> Any:
        watch.era = object()
        return usual(*args, **options)

    found: Any = noted
    found.lock_watch = watch
    return found
