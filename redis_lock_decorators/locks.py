"""``Locks``: the connection and the defaults of one project's locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from redis_lock_decorators._io.client_types import (
    AsyncClient,
    AsyncFactory,
    BlockingClient,
    BlockingFactory,
)
from redis_lock_decorators._rules import naming
from redis_lock_decorators._shared.lock_base import with_options
from redis_lock_decorators._shared.settings import DEFAULT, NOT_PICKLED, LockOptions, Settings
from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock
from redis_lock_decorators.decorator import RedisLockDecorator
from redis_lock_decorators.redislock import RedisLock

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from redis_lock_decorators._rules.options import Hook, OnLost, ReleaseMethod, Wait
    from redis_lock_decorators._rules.owner_info import OwnerInfoOption


class Locks(RedisLockDecorator):
    """The locks of one project or library; two ``Locks`` objects in a process share nothing.

    Args:
        get_redis_connection: returns the project's client; called at first use, once per process.
        get_async_redis_connection: returns its asyncio client; called once per event loop.
        client: the client itself, instead of a function; an asyncio client serves one event loop.
        options: the defaults of the project's locks, as for ``RedisLock``; durations in seconds.

    Raises:
        ConfigurationError: an option is unknown or invalid.
    """

    # Every option is written out once, for editors, which complete no keywords from a TypedDict.
    @overload
    def __init__(
        self,
        get_redis_connection: BlockingFactory,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: None = None,
        acquire_time: float | None = ...,
        expire: float = ...,
        prefix: str = ...,
        delta: float = ...,
        release_method: ReleaseMethod = ...,
        auto_renew: bool = ...,
        max_hold: float | None = ...,
        min_hold: float | None = ...,
        on_lost: OnLost | None = ...,
        cancel_on_lost: bool = ...,
        fencing: bool = ...,
        replicas: int = ...,
        wait: Wait = ...,
        hooks: Sequence[Hook] = ...,
        owner_info: OwnerInfoOption = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        get_redis_connection: None = None,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: BlockingClient | AsyncClient | None = None,
        **options: Unpack[LockOptions],
    ) -> None: ...

    def __init__(
        self,
        get_redis_connection: BlockingFactory | None = None,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: BlockingClient | AsyncClient | None = None,
        **options: Unpack[LockOptions],
    ) -> None:
        self._settings = Settings()
        self._settings.configure(get_redis_connection, get_async_redis_connection, client, options)

    @overload
    def configure(
        self,
        get_redis_connection: BlockingFactory,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: None = None,
        acquire_time: float | None = ...,
        expire: float = ...,
        prefix: str = ...,
        delta: float = ...,
        release_method: ReleaseMethod = ...,
        auto_renew: bool = ...,
        max_hold: float | None = ...,
        min_hold: float | None = ...,
        on_lost: OnLost | None = ...,
        cancel_on_lost: bool = ...,
        fencing: bool = ...,
        replicas: int = ...,
        wait: Wait = ...,
        hooks: Sequence[Hook] = ...,
        owner_info: OwnerInfoOption = ...,
    ) -> None: ...

    @overload
    def configure(
        self,
        get_redis_connection: None = None,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: BlockingClient | AsyncClient | None = None,
        **options: Unpack[LockOptions],
    ) -> None: ...

    def configure(
        self,
        get_redis_connection: BlockingFactory | None = None,
        get_async_redis_connection: AsyncFactory | None = None,
        *,
        client: BlockingClient | AsyncClient | None = None,
        **options: Unpack[LockOptions],
    ) -> None:
        """Change the project's connection and the given defaults; the others remain.

        Existing locks and decorated functions use the new defaults, except for the options that
        were given to them. The arguments are those of ``Locks``.

        Raises:
            ConfigurationError: an option is unknown or invalid; nothing was changed.
        """
        self._settings.configure(get_redis_connection, get_async_redis_connection, client, options)

    def __reduce__(self) -> str:
        """Pickle the default locks by reference; refuse others, as a copy would share nothing.

        Raises:
            TypeError: these are not the default locks.
        """
        if self is not default:
            raise TypeError(NOT_PICKLED)
        return "default"

    def lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        client: BlockingClient | None = None,
        get_redis_connection: BlockingFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> RedisLock:
        """Return a ``RedisLock`` with the project's connection and defaults.

        The arguments and errors of ``RedisLock``.
        """
        lock = RedisLock.__new__(RedisLock)
        return with_options(
            lock, self._settings, client, get_redis_connection, options, lock_name, get_lock_name
        )

    def async_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        client: AsyncClient | None = None,
        get_redis_connection: AsyncFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> AsyncRedisLock:
        """Return a ``redis_lock_decorators.asyncio.RedisLock`` with the project's defaults.

        The arguments and errors of ``RedisLock``; ``get_redis_connection`` returns an asyncio
        client.
        """
        lock = AsyncRedisLock.__new__(AsyncRedisLock)
        return with_options(
            lock, self._settings, client, get_redis_connection, options, lock_name, get_lock_name
        )

    def force_release(
        self,
        lock_name: naming.LockName,
        identifier: str | None = None,
        *,
        client: BlockingClient | None = None,
        get_redis_connection: BlockingFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> bool:
        """Release the lock of another holder: ``RedisLock.force_release`` by the lock's name."""
        lock = self.lock(
            lock_name, client=client, get_redis_connection=get_redis_connection, **options
        )
        return lock.force_release(identifier)


def of(settings: Settings) -> Locks:
    """Return the ``Locks`` of existing settings."""
    locks = Locks.__new__(Locks)
    locks._settings = settings
    return locks


#: The locks behind the module-level names.
default = of(DEFAULT)
configure = default.configure
force_release = default.force_release
redis_lock = default.redis_lock
