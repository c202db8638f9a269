"""Where a client comes from when the user gave only a factory, an environment or nothing."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.flow import process
from redis_lock_decorators.world.clients import Bell, Facts, refuse_unfit

#: Gives the Redis client of a project; called at the first use of a lock, once per process.
ConnectionFactory = Callable[[], Any]

DEFAULT_URL = "redis://localhost:6379/0"


T = TypeVar("T")


class Connections(Generic[T]):
    """The clients of one project in one process or event loop, and what is known of them.

    Args:
        lane: makes the way to a client.
        bell: the event loop that looks after the leases of this process, or of a loop.
        awaited: the clients are asyncio's.
    """

    def __init__(self, lane: Callable[[], T], bell: Bell, *, awaited: bool) -> None:
        self.process = process.number
        self._lane = lane
        self._bell = bell
        self._awaited = awaited
        self._guard = threading.Lock()
        # Functions weakly, so that a lambda made for one lock goes with it, and its client too.
        self._clients: WeakKeyDictionary[ConnectionFactory, Any] = WeakKeyDictionary()
        self._others: dict[ConnectionFactory, Any] = {}
        self._facts: WeakKeyDictionary[Any, Facts[T]] = WeakKeyDictionary()

    def client(self, factory: ConnectionFactory) -> Any:
        """The factory's client, made at the first call.

        Raises:
            ConfigurationError: the factory gave no Redis client, or one of the other world.
        """
        clients = self._clients if isinstance(factory, FunctionType) else self._others
        client = clients.get(factory)
        if client is None:
            with self._guard:
                client = clients.get(factory)
                if client is None:
                    client = factory()
                    refuse_unfit(client, self._awaited)
                    clients[factory] = client
        return client

    def facts(self, client: Any) -> Facts[T]:
        """What is known of a client."""
        try:
            return self._facts[client]
        except (KeyError, TypeError):
            refuse_unfit(client, self._awaited)
        return self._facts.setdefault(client, Facts(client, self._lane(), self._bell))


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
        return _imported(named)()
    try:
        redis = importlib.import_module(library)
        return redis.Redis.from_url(os.environ.get("REDIS_URL") or DEFAULT_URL)
    except ValueError:
        # From None, and without the address: it may hold a password.
        raise ConfigurationError(
            "REDIS_URL is no Redis address such as redis://localhost:6379/0 "
            "(it is not shown: it may hold a password)"
        ) from None


def _imported(named: str) -> ConnectionFactory:
    module_name, _, attribute = named.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} names no factory: {error}; "
            "write it as package.module:function"
        ) from error
    if not callable(factory):
        raise ConfigurationError(f"REDIS_LOCK_CONNECTION={named!r} cannot be called")
    found: ConnectionFactory = factory
    return found
