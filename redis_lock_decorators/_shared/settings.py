"""The settings of one project: the defaults of its locks and the sources of its clients."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, TypedDict

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.asyncio_port import AsyncioPort, port_of
from redis_lock_decorators._io.background.hubs import (
    MOST_HUBS,
    are_threads_green,
    forget_oldest,
    hub,
)
from redis_lock_decorators._io.background.loops import (
    background_loop,
    caller_loop,
)
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_checks import is_awaited, refuse_unfit_client
from redis_lock_decorators._io.client_sources import (
    ClientSource,
    ConnectionFactory,
    GivenClient,
    unproxied,
)
from redis_lock_decorators._io.closed_loops import LoopKey, forget_closed
from redis_lock_decorators._io.environment import async_from_environment, from_environment
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._rules.fitting import fits
from redis_lock_decorators._rules.interruptions import NO_LOOP, is_from_python
from redis_lock_decorators._rules.misnamed import refuse_unknown
from redis_lock_decorators._rules.options import Hook, OnLost, Options, ReleaseMethod, Wait
from redis_lock_decorators._rules.owner_info import OwnerInfoOption
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError


class KeywordOptions(TypedDict, total=False):
    """The keyword-only options of a lock; durations in seconds."""

    delta: float
    prefix: str
    release_method: ReleaseMethod
    auto_renew: bool
    max_hold: float | None
    min_hold: float | None
    on_lost: OnLost | None
    cancel_on_lost: bool
    fencing: bool
    replicas: int
    wait: Wait
    hooks: Sequence[Hook]
    owner_info: OwnerInfoOption


class LockOptions(KeywordOptions, total=False):
    """All options of a lock; durations in seconds."""

    acquire_time: float | None
    expire: float


OPTION_NAMES = frozenset(LockOptions.__annotations__)
#: Why settings other than the default ones are not pickled.
NOT_PICKLED = (
    "cannot copy or pickle a Locks object, as its connections and settings belong to its process: "
    "create it in a module, and import it where it is used"
)
_CACHED = frozenset({int, float, str, bool, NoneType})


class Settings:
    """The state that the locks of one project share; two ``Settings`` share nothing."""

    def __init__(self) -> None:
        #: any thread
        self.options = Options()
        self.get_redis_connection: ConnectionFactory = from_environment
        self.get_async_redis_connection: ConnectionFactory = async_from_environment
        self._connections = ClientSource(PrivatePool, background_loop(), awaited=False)
        self._by_hub: dict[object, ClientSource[PrivatePool]] = {}
        self._by_loop: dict[LoopKey, ClientSource[RequestBatcher]] = {}

    def configure(
        self,
        get_redis_connection: ConnectionFactory | None,
        get_async_redis_connection: ConnectionFactory | None,
        client: Any,
        options: LockOptions,
    ) -> None:
        """Change the defaults, also of existing locks, except for the options given to them.

        Raises:
            ConfigurationError: an option is unknown or invalid; nothing was changed.
        """
        if client is not None:
            given = get_redis_connection or get_async_redis_connection
            get_redis_connection, get_async_redis_connection = _factories(client, given)
        changed = combined(self.options, options)
        checked_factory(get_redis_connection)
        checked_factory(get_async_redis_connection, "get_async_redis_connection")
        if get_redis_connection is not None:
            self.get_redis_connection = get_redis_connection
        if get_async_redis_connection is not None:
            self.get_async_redis_connection = get_async_redis_connection
        self.options = changed

    def __reduce__(self) -> str:
        """Pickle the default settings by reference: each process has its own.

        Raises:
            TypeError: these are the settings of a ``Locks`` object.
        """
        if self is not DEFAULT:
            raise TypeError(NOT_PICKLED)
        return "DEFAULT"

    def port(self, client: Any, factory: ConnectionFactory | None) -> BlockingPort:
        """Return the port to a client, or to that of a factory, or to that of the project."""
        connections = self._of_hub() if are_threads_green() else self._connections
        if connections.process != fork.process_id:  # a forked child connects for itself
            connections = self._connections = ClientSource(
                PrivatePool, background_loop(), awaited=False
            )
        if client is None:
            client = connections.client(factory or self._factory())
        client_state = connections.known_state(client)
        if client_state is None:
            client = unproxied(client)
            client_state = connections.client_state(client)
        return BlockingPort(client, client_state)

    def _of_hub(self) -> ClientSource[PrivatePool]:
        """Return the clients of the running greenlet's hub, as a socket belongs to one hub."""
        number, known = hub(), self._by_hub
        found = known.get(number)
        if found is None or found.process != fork.process_id:
            found = known[number] = ClientSource(PrivatePool, background_loop(), awaited=False)
            forget_oldest(known, MOST_HUBS)
        return found

    def async_port(self, client: Any, factory: ConnectionFactory | None) -> AsyncioPort:
        """Return the port to an asyncio client on the running event loop."""
        try:
            key = fork.process_id, asyncio.get_running_loop()  # ``running_loop``, without a call
        except RuntimeError as error:
            _refuse_other_loops(error)
            raise
        connections = self._by_loop.get(key)
        if connections is None:
            forget_closed(self._by_loop)
            connections = self._by_loop[key] = ClientSource(
                RequestBatcher, caller_loop(), awaited=True
            )
        if client is None:
            client = connections.client(factory or self._async_factory())
        client_state = connections.known_state(client)
        if client_state is None:
            client = unproxied(client)
            client_state = connections.client_state(client)
        return port_of(client, client_state)

    def _factory(self) -> ConnectionFactory:
        hooked = self.get_async_redis_connection is not async_from_environment
        if hooked and self.get_redis_connection is from_environment:
            raise ConfigurationError(
                "this code is not async, but only an asyncio client is configured: configure "
                "get_redis_connection=… with a function that returns a blocking client of the "
                "same server"
            )
        return self.get_redis_connection

    def _async_factory(self) -> ConnectionFactory:
        hooked = self.get_redis_connection is not from_environment
        if hooked and self.get_async_redis_connection is async_from_environment:
            raise ConfigurationError(
                "this code is async, but only get_redis_connection is configured: configure "
                "get_async_redis_connection=… with a function that returns a redis.asyncio client"
            )
        return self.get_async_redis_connection


def _factories(
    client: Any, given: ConnectionFactory | None
) -> tuple[ConnectionFactory | None, ConnectionFactory | None]:
    """Return the blocking and the asyncio factory that always return this client."""
    if given is not None:
        raise ConfigurationError(
            "give client or a function such as get_redis_connection, not both; a client serves "
            "either threads or one event loop"
        )
    awaited = is_awaited(client)
    refuse_unfit_client(client, awaited)
    return (None, GivenClient(client)) if awaited else (GivenClient(client), None)


def combined(options: Options, given: LockOptions) -> Options:
    """Return the options with the given changes, checked."""
    if not given:
        return options
    if not OPTION_NAMES.issuperset(given):
        refuse_unknown(given, OPTION_NAMES)
    # Locks that are created for each use have the same few options: check these once.
    if _CACHED.issuperset(map(type, given.values())):
        return _checked(options, tuple(given), *given.values())
    return dataclasses.replace(options, **given)


@lru_cache(maxsize=256, typed=True)
def _checked(options: Options, names: tuple[str, ...], *values: Any) -> Options:
    return dataclasses.replace(options, **dict(zip(names, values, strict=True)))


def checked_factory(factory: object, option: str = "get_redis_connection") -> None:
    """Refuse a factory that cannot be called without arguments, such as a client."""
    if factory is None:
        return
    if not callable(factory):
        raise ConfigurationError(
            f"{option}={type(factory).__name__} cannot be called: give a function "
            f"that returns a client, as in {option}=lambda: client"
        )
    if not fits(factory, ()):
        raise ConfigurationError(
            f"{option}={shown_value(factory)} needs arguments, but it is called without any"
        )


def _refuse_other_loops(error: RuntimeError) -> None:
    if is_from_python(error, NO_LOOP):
        raise ConfigurationError(
            "asynchronous locks need a running event loop of asyncio: under Trio, use a RedisLock "
            "for threads, in trio.to_thread.run_sync"
        ) from None


#: The settings behind the module-level names.
DEFAULT = Settings()
