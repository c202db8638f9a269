"""Where a client comes from when the user gave only a factory, an environment or nothing."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from redis_lock_decorators import _lua
from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.loop_ends import at_end, close_clients
from redis_lock_decorators._io.client_checks import refuse_unfit
from redis_lock_decorators._io.client_state import ClientLoop, ClientState
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.per_factory import PerFactory
from redis_lock_decorators.errors import ConfigurationError

#: Gives the Redis client of a project; called at the first use of a lock, once per process (where
#: threads are greenlets, once per native thread: no hub can wait for another's sockets).
ConnectionFactory = Callable[[], Any]

DEFAULT_URL = "redis://localhost:6379/0"

#: Seconds to wait for another thread's call of a factory before calling it as well.
PATIENCE = 30.0
#: So many calls of a factory within each other are no chance: it uses a lock that needs it.
MOST_NESTED = 4

T = TypeVar("T")


class Making:
    """The calls of one factory that are under way.

    Code of others may run at any line of a factory, on its thread: a signal handler, a finaliser.
    If that needs the same client, it calls the factory once more instead of waiting for itself.

    Attributes:
        guard: has other threads wait for the client, though not for ever: who makes it may wait
            for them.
        callers: the threads that are in the factory, by identifier; once for each call.
    """

    __slots__ = ("__weakref__", "callers", "guard")

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.callers: list[int] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time, as far as that can be."""
        is_alone = self.guard.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if is_alone:
                self.guard.release()

    def call(self, factory: ConnectionFactory) -> Any:
        """What the factory gives.

        Raises:
            ConfigurationError: the factory uses a lock that needs the factory.
        """
        caller = threading.get_ident()
        if self.callers.count(caller) >= MOST_NESTED:
            raise ConfigurationError(
                f"the factory {factory!r} uses a lock that needs the client it is to make: give "
                "that lock a client of its own"
            )
        try:
            self.callers.append(caller)
            return factory()
        finally:
            with suppress(ValueError):  # an exception from outside came first
                self.callers.remove(caller)


class Given:
    """A factory that always gives a client of the program's own, which the program closes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self) -> Any:
        return self._client


def present(client: Any) -> Any:
    """The client that a proxy stands for where it is used, as werkzeug's ``LocalProxy``.

    It stands for another one, or for none, on the thread where leases are renewed.
    """
    while hasattr(type(client), "_get_current_object"):
        client = client._get_current_object()
    return client


class ClientSource(Generic[T]):
    """The clients of one project in one process or event loop, and what is known of them.

    Args:
        sender: makes the way to a client.
        lease_loop: the event loop that looks after the leases of this process, or of a loop.
        awaited: the clients are asyncio's.
    """

    def __init__(self, sender: Callable[[], T], lease_loop: ClientLoop, *, awaited: bool) -> None:
        self.process = fork.number
        self._sender = sender
        self._lease_loop = lease_loop
        self._awaited = awaited
        self._clients: PerFactory[Any] = PerFactory()
        self._makings: PerFactory[Making] = PerFactory()
        self._made: PerFactory[Any] = PerFactory()
        self._end: object = None

    def client(self, factory: ConnectionFactory) -> Any:
        """The factory's client, made at the first call.

        Raises:
            ConfigurationError: the factory gave no Redis client, or one of the other world, or
                uses a lock that needs it.
        """
        clients = self._clients
        client = clients.get(factory)
        if client is None:
            making = self._makings.setdefault(factory, Making())
            with making.turn():
                client = clients.get(factory)
                if client is None:
                    client = making.call(factory)
                    if not isinstance(factory, Given):
                        client = present(client)
                    refuse_unfit(client, self._awaited)
                    # Who came meanwhile may have made one, which is in use already.
                    client = clients.setdefault(factory, client)
            if self._awaited and not isinstance(factory, Given):
                self._close_at_end(factory, client)
        return client

    def client_state(self, client: Any) -> ClientState[T]:
        """What is known of a client.

        All projects share it: it has connections, which would be left when a project ends.
        """
        known: PerClient[ClientState[T]] = self._lease_loop.clients
        client_state = known.get(client)
        if client_state is None:
            refuse_unfit(client, self._awaited)
            _lua.load()
            client_state = known.setdefault(
                client, ClientState(client, self._sender(), self._lease_loop)
            )
        return client_state

    def _close_at_end(self, factory: ConnectionFactory, client: Any) -> None:
        """Have a client closed with this event loop, for which it was made."""
        made, known = self._made, self._lease_loop.clients
        made.setdefault(factory, client)

        async def close() -> None:
            await close_clients([(client, known.get(client)) for client in made.values()])

        if self._end is None:
            self._end = at_end(close)


def from_environment() -> Any:
    """The client that the environment names: REDIS_LOCK_CONNECTION, REDIS_URL, or localhost.

    Raises:
        ConfigurationError: the named factory cannot be found, or the URL cannot be read.
    """
    return _from_environment("redis")


def async_from_environment() -> Any:
    """The asyncio client that the environment names.

    Raises:
        ConfigurationError: the named factory cannot be found, or the URL cannot be read.
    """
    return _from_environment("redis.asyncio")


def _from_environment(library: str) -> Any:
    named = os.environ.get("REDIS_LOCK_CONNECTION")
    if named:
        return _checked(_imported(named)(), named, library == "redis.asyncio")
    try:
        redis = importlib.import_module(library)
        return redis.Redis.from_url(os.environ.get("REDIS_URL") or DEFAULT_URL)
    except ValueError:
        # From None, and without the address: it may hold a password.
        raise ConfigurationError(
            "REDIS_URL is no Redis address such as redis://localhost:6379/0 "
            "(it is not shown: it may hold a password)"
        ) from None


def _checked(client: Any, named: str, awaited: bool) -> Any:
    """The client that the environment's function gave, if it can be used."""
    try:
        refuse_unfit(client, awaited)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r}: {error}; its function serves threads or asyncio "
            "(REDIS_URL alone serves both; or configure what serves the other)"
        ) from None
    return client


def _imported(named: str) -> ConnectionFactory:
    module_name, _, attribute = named.partition(":")
    if not (module_name and attribute):
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} names no factory: write it as package.module:function"
        )
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} names no factory: {error}; "
            "write it as package.module:function"
        ) from error
    if not callable(factory):
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} is a {type(factory).__name__}, which cannot be "
            "called: name a function that returns a client"
        )
    found: ConnectionFactory = factory
    return found
