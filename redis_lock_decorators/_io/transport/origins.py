"""Where a pool's connections lead now, so that private connections can follow it.

A pool closes its own connections when its client is closed or has to reconnect, as after a
failover to another address. It does not know the private connections and reports nothing, so the
calls of its methods that drop connections are recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol
from weakref import ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.client_errors import PoolReplaced

#: Stands for no pool; the record of a pool's calls is None if it cannot be recorded.
NO_POOL = object()
#: The pool's era (see ``_Watch``), the address to which it connects, and its own attributes that
#: make connections: a program may replace them.
Origin = tuple[object, ...]


class Follower(Protocol):
    """Private connections made like those of a pool."""

    def close_with_pool(self, watch: object) -> None:
        """Close the idle connections: the pool has dropped its own. Called on any thread.

        ``watch`` is what ``follow`` returned for that pool.
        """


class IdleFollower:
    """Idle connections that are closed with the pool that they were opened for last.

    After that none is kept until the next acquisition, or until one is opened for another pool. Any
    thread may close the pool.

    Attributes:
        is_fit: whether connections like those of a pool can be opened past it.
    """

    __slots__ = ("__weakref__", "_closed", "_followed", "is_fit")

    def __init__(self) -> None:
        #: any thread
        self._followed: object = None  # the record of the pool's calls
        self._closed: object = NO_POOL  # the same of the pool that was closed

        self.is_fit: Callable[[Any], bool] = _is_any

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed, and no acquisition has followed."""
        return self._closed is self._followed

    def follow(self, pool: Any) -> None:
        """Close the idle connections with this pool from now on, and no longer with another.

        Raises:
            PoolReplaced: its connections cannot be imitated.
        """
        if not self.is_fit(pool):
            self.drop()
            raise PoolReplaced(
                "the pool of the client was replaced, or its methods were, by the program's own: "
                "locks use the methods of the client from now on"
            )
        self._followed = follow(pool, self)

    def reopen(self) -> None:
        """Keep connections again: the client is used again."""
        self._closed = NO_POOL

    def close_with_pool(self, watch: object) -> None:
        """Close the idle connections, and keep none until the next acquisition."""
        if watch is self._followed:  # the client may have another pool since
            self._closed = watch
            self.drop()

    def drop(self) -> None:
        """Close the idle connections."""
        raise NotImplementedError


def _is_any(pool: Any) -> bool:
    return True


class _Watch:
    """A record of a pool's calls.

    Attributes:
        era: replaced by a new object each time that the pool drops its connections.
    """

    __slots__ = ("_followers", "era")

    def __init__(self) -> None:
        self.era = object()  #: any thread
        self._followers: dict[int, tuple[int, Callable[[], Follower | None]]] = {}  #: any thread

    def add(self, follower: Follower) -> None:
        followers, number = self._followers, id(follower)

        def forget(gone: object) -> None:
            entry = followers.get(number)
            if entry is not None and entry[1] is gone:
                followers.pop(number, None)

        followers[number] = fork.process_id, ref(follower, forget)

    def close_followers(self) -> None:
        """Close the followers' idle connections, not those of the process that forked this one."""
        for process, find in list(self._followers.values()):
            follower = find()
            if follower is not None and process == fork.process_id:
                follower.close_with_pool(self)


def origin(pool: Any) -> Origin:
    """Where a client's pool leads; changes with the pool and when it drops connections."""
    try:
        own = pool.__dict__
        era = own["disconnect"].lock_watch.era
    except (AttributeError, KeyError):
        own, era = getattr(pool, "__dict__", {}), _watched(pool)
    get, part = pool.connection_kwargs.get, own.get
    return (
        era,
        get("host"),
        get("port"),
        get("db"),
        get("path"),
        part("connection_class"),
        part("make_connection"),
        part("get_connection"),
    )


def follow(pool: Any, follower: Follower) -> object:
    """Have the follower, which is referred to weakly, close its connections with the pool's.

    Returns the record of the pool's calls, which identifies the pool; None if there is none.
    """
    origin(pool)  # records its calls from now on
    watch = getattr(getattr(pool, "disconnect", None), "lock_watch", None)
    if watch is not None:
        watch.add(follower)
    return watch


def is_elsewhere(connection: Any, pool: Any) -> bool:
    """Whether a Sentinel pool has found another master since the connection was opened."""
    master = getattr(pool, "master_address", None)
    return master is not None and (connection.host, connection.port) != master


def _watched(pool: Any) -> object:
    """Record a pool's calls from now on; returns its era, or the pool itself if that fails."""
    try:
        methods = vars(pool)
        new = _recorded(pool, "disconnect", _Watch())
        found = methods.setdefault("disconnect", new)  # another thread may be first
        if not hasattr(found, "lock_watch"):  # set by the program
            found = methods["disconnect"] = new
        watch: _Watch = found.lock_watch
        methods["reset"] = _recorded(pool, "reset", watch)
    except (AttributeError, TypeError):
        return pool
    return watch.era


def _recorded(pool: Any, name: str, watch: _Watch) -> Any:
    """A pool's method, wrapped so that its calls are recorded.

    It refers to the pool strongly, as bound methods do: a client may call it while both are being
    garbage-collected, when weak references are already dead.
    """
    usual = getattr(pool, name)

    @wraps(usual)
    async def recorded_in_task(*args: Any, **options: Any) -> Any:
        watch.era = object()
        try:
            return await usual(*args, **options)
        finally:
            watch.close_followers()

    @wraps(usual)
    def recorded(*args: Any, **options: Any) -> Any:
        watch.era = object()
        try:
            return usual(*args, **options)
        finally:
            watch.close_followers()

    found: Any = recorded_in_task if inspect.iscoroutinefunction(usual) else recorded
    found.lock_watch = watch
    return found
