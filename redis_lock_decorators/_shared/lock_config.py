"""Everything about a lock but its name: its options and the way to its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_checks import refuse_at_door
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
    """What a lock was told itself, over what its project's settings say at the time of use."""

    __slots__ = ("_base", "_client", "_factory", "_given", "_options", "_settings")

    def __init__(
        self,
        settings: Settings,
        client: Any,
        factory: ConnectionFactory | None,
        given: LockOptions,
    ) -> None:
        if client is not None and factory is not None:
            raise ConfigurationError("give client or get_redis_connection, not both")
        self._settings = settings
        self._client = client
        if factory is not None:
            checked_factory(factory)
        self._factory = factory
        self._given = given
        self._base = base = settings.options
        self._options = combined(base, given) if given else base

    def refuse_client(self, awaited: bool | None) -> None:
        """Refuse what is no client, or one of the other world than is needed, if that is known.

        Raises:
            ConfigurationError: it cannot be used, with the cure.
        """
        if self._client is not None:
            refuse_at_door(self._client, awaited)

    @property
    def options(self) -> Options:
        """The options in force now."""
        if self._base is not self._settings.options:
            self._base = self._settings.options
            self._options = combined(self._base, self._given)
        return self._options

    def given_options(self) -> tuple[ConnectionFactory | None, LockOptions]:
        """All that was said of the lock itself, for another process.

        Raises:
            TypeError: there is more to it, that other processes do not have.
        """
        if self._client is not None:
            raise TypeError(
                "cannot pickle a lock with client=…, as connections belong to their process: give "
                "it get_redis_connection=… with a function of a module, or configure that"
            )
        if self._settings is not DEFAULT:
            raise TypeError(
                "cannot pickle a lock of a Locks object, whose settings belong to their process: "
                "send its name, and make the lock there by the Locks object of a module"
            )
        return self._factory, self._given

    def port(self) -> BlockingPort:
        """The port to the client, which is made now if this is the first use."""
        return self._settings.port(self._client, self._factory)

    def async_port(self) -> AsyncioPort:
        """The port to the asyncio client on the running event loop."""
        return self._settings.async_port(self._client, self._factory)
