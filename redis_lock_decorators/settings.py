"""The settings of one project: the defaults of its locks and where its connections come from."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, TypedDict

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.rules.options import Options, ReleaseMethod
from redis_lock_decorators.world.blocking import BlockingPort
from redis_lock_decorators.world.connections import ConnectionFactory, Connections, from_environment


class LockOptions(TypedDict, total=False):
    """The keywords that every kind of lock takes; durations in seconds."""

    acquire_time: float | None
    expire: float
    delta: float
    prefix: str
    release_method: ReleaseMethod


OPTION_NAMES = frozenset(LockOptions.__annotations__)


class Settings:
    """What the locks of one project share. Two of them never share anything."""

    def __init__(self) -> None:
        self.options = Options()
        self.get_redis_connection: ConnectionFactory = from_environment
        self._connections = Connections()

    def configure(
        self, get_redis_connection: ConnectionFactory | None, options: LockOptions
    ) -> None:
        """Change the defaults; locks that exist follow, except in what they were told themselves.

        Raises:
            ConfigurationError: an option is unknown or not usable; nothing was changed.
        """
        changed = combined(self.options, options)
        if get_redis_connection is not None:
            self.get_redis_connection = checked_factory(get_redis_connection)
        self.options = changed

    def port(self, client: Any, factory: ConnectionFactory | None) -> BlockingPort:
        """The port to a client, or to the one that a factory (or the project's) gives."""
        connections = self._connections
        if connections.process != os.getpid():  # a forked child connects for itself
            connections = self._connections = Connections()
        if client is None:
            client = connections.client(factory or self.get_redis_connection)
        return BlockingPort(client, connections.facts(client))


def combined(options: Options, given: LockOptions) -> Options:
    """The options, changed by those given; checks them."""
    if not given:
        return options
    unknown = set(given) - OPTION_NAMES
    if unknown:
        known = ", ".join(sorted(OPTION_NAMES))
        raise ConfigurationError(f"unknown option {', '.join(sorted(unknown))}: there are {known}")
    return dataclasses.replace(options, **given)


def checked_factory(factory: object) -> ConnectionFactory:
    """Refuse a hook that cannot be called, such as a client given in its place."""
    if not callable(factory):
        raise ConfigurationError(
            f"get_redis_connection={type(factory).__name__} cannot be called: give a function "
            "that returns a client (or client=… for the client itself)"
        )
    return factory


#: The settings behind the module-level names.
DEFAULT = Settings()
