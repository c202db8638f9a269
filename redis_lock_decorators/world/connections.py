"""Where a client comes from when the user gave only a factory, an environment or nothing."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.world.clients import Facts, refuse_unfit

#: Gives the Redis client of a project; called at the first use of a lock, once per process.
ConnectionFactory = Callable[[], Any]

DEFAULT_URL = "redis://localhost:6379/0"


class Connections:
    """The clients of one project in one process, and what is known of them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._guard = threading.Lock()
        # Functions weakly, so that a lambda made for one lock goes with it, and its client too.
        self._clients: WeakKeyDictionary[ConnectionFactory, Any] = WeakKeyDictionary()
        self._others: dict[ConnectionFactory, Any] = {}
        self._facts: WeakKeyDictionary[Any, Facts] = WeakKeyDictionary()

    def client(self, factory: ConnectionFactory) -> Any:
        """The factory's client, made at the first call.

        Raises:
            ConfigurationError: the factory gave no blocking Redis client.
        """
        clients = self._clients if isinstance(factory, FunctionType) else self._others
        client = clients.get(factory)
        if client is None:
            with self._guard:
                client = clients.get(factory)
                if client is None:
                    client = factory()
                    refuse_unfit(client)
                    clients[factory] = client
        return client

    def facts(self, client: Any) -> Facts:
        """What is known of a client."""
        try:
            return self._facts[client]
        except (KeyError, TypeError):
            refuse_unfit(client)
        return self._facts.setdefault(client, Facts(client))


def from_environment() -> Any:
    """The client that the environment names: REDIS_LOCK_CONNECTION, REDIS_URL, or localhost.

    Raises:
        ConfigurationError: the named factory cannot be found, or the URL cannot be read.
    """
    named = os.environ.get("REDIS_LOCK_CONNECTION")
    if named:
        return _imported(named)()
    import redis

    try:
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
