"""The configuration of a lock: its options and the source of its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_checks import refuse_early
from redis_lock_decorators._io.client_sources import ConnectionFactory
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.settings import (
    DEFAULT,
    LockOptions,
    Settings,
    checked_factory,
    combined,
)
from redis_lock_decorators.errors import ConfigurationError

if TYPE_CHECKING:
    from redis_lock_decorators._io.asyncio_port import AsyncioPort


class LockConfig:
    """The options and client given to a lock, over the settings of its project when it is used.

    Attributes:
        label: what its events are labelled by: see ``redis_lock_decorators.events.LockEvent``.
        function: the decorated function whose calls it is for; None if there is none.
    """

    __slots__ = ("_client", "_combined", "_factory", "_given", "_settings", "function", "label")

    def __init__(
        self,
        settings: Settings,
        client: Any,
        factory: ConnectionFactory | None,
        given: LockOptions,
        label: str = "RedisLock",
    ) -> None:
        if client is not None and factory is not None:
            raise ConfigurationError("give client or get_redis_connection, not both")
        self._settings = settings
        self._client = client
        if factory is not None:
            checked_factory(factory)
        self._factory = factory
        self._given = given
        self.label = label
        self.function: Callable[..., object] | None = None
        base = settings.options
        #: any thread: the project's options, and their combination with those given. One attribute,
        #: as ``configure`` or an exception from outside may come between two stores.
        self._combined = base, combined(base, given) if given else base

    def of_function(self, label: str, function: Callable[..., object]) -> LockConfig:
        """Return the same configuration for the locks of one decorated function."""
        config = LockConfig(self._settings, self._client, self._factory, self._given, label)
        config.function = function
        return config

    def refuse_client(self, awaited: bool | None) -> None:
        """Refuse a client of the wrong kind. ``awaited``: needs an asyncio client; None if unknown.

        Raises:
            ConfigurationError: the client cannot be used.
        """
        if self._client is not None:
            refuse_early(self._client, awaited)

    @property
    def options(self) -> Options:
        """The options in force, including later changes by ``configure``."""
        base, options = self._combined
        if base is not self._settings.options:
            base = self._settings.options
            options = combined(base, self._given)
            self._combined = base, options
        return options

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the factory and options of the lock; the other process adds what it configured.

        Raises:
            TypeError: the lock has a client or ``Locks`` object of its own.
        """
        if self._client is not None:
            raise TypeError(
                "cannot pickle a lock with client=…, as connections belong to their process: give "
                "it get_redis_connection=… with a function of a module, or configure one"
            )
        if self._settings is not DEFAULT:
            raise TypeError(
                "cannot pickle a lock of a Locks object, whose settings belong to their process: "
                "send its name, and create the lock there by the Locks object of a module. A "
                "decorated function that is defined in a module is pickled by its name"
            )
        return LockConfig, (DEFAULT, None, self._factory, self._given, self.label)

    def port(self) -> BlockingPort:
        """Return the port to the client; the first use creates the client."""
        return self._settings.port(self._client, self._factory)

    def async_port(self) -> AsyncioPort:
        """Return the port to the asyncio client on the running event loop."""
        return self._settings.async_port(self._client, self._factory)
