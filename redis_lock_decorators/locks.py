"""Locks: the locks of one project, with its own connection and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from redis_lock_decorators.decorator import OnBusy, checked_busy, decorated
from redis_lock_decorators.description import described
from redis_lock_decorators.plan import Plan
from redis_lock_decorators.redislock import RedisLock
from redis_lock_decorators.rules import naming
from redis_lock_decorators.rules.keys import is_name
from redis_lock_decorators.settings import DEFAULT, LockOptions, Settings
from redis_lock_decorators.world.client_checks import refuse_misplaced
from redis_lock_decorators.world.connections import ConnectionFactory

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock

F = TypeVar("F", bound=Callable[..., Any])


class Locks:
    """The locks of one project or library; two of them in a process share nothing.

    Args:
        get_redis_connection: gives the project's client; called at first use, once per process.
        get_async_redis_connection: gives its asyncio client; called once per event loop.
        client: the client itself, in place of a hook; an asyncio client serves one event loop.
        options: defaults for the project's locks, as for ``RedisLock``; durations in seconds.

    Raises:
        ConfigurationError: an option is unknown or not usable.
    """

    def __init__(
        self,
        get_redis_connection: ConnectionFactory | None = None,
        get_async_redis_connection: ConnectionFactory | None = None,
        *,
        client: Any = None,
        **options: Unpack[LockOptions],
    ) -> None:
        self._settings = Settings()
        self._settings.configure(get_redis_connection, get_async_redis_connection, client, options)

    def configure(
        self,
        get_redis_connection: ConnectionFactory | None = None,
        get_async_redis_connection: ConnectionFactory | None = None,
        *,
        client: Any = None,
        **options: Unpack[LockOptions],
    ) -> None:
        """Change the project's connection hook and defaults; unnamed ones stay.

        Locks and decorated functions that exist follow, except in what they were told themselves.

        Raises:
            ConfigurationError: an option is unknown or not usable; nothing was changed.
        """
        self._settings.configure(get_redis_connection, get_async_redis_connection, client, options)

    def __reduce__(self) -> str:
        """Refuse to be copied, by ``pickle`` or in this process: copies would share nothing.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "cannot copy or pickle a Locks object, as its connections and settings belong to its "
            "process: keep it in a module, and import it where it is used"
        )

    def lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> RedisLock:
        """A ``RedisLock`` with the project's connection and defaults."""
        plan = Plan(self._settings, client, get_redis_connection, options)
        return described(RedisLock, plan, lock_name, get_lock_name)

    def async_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> AsyncRedisLock:
        """A ``redis_lock_decorators.asyncio.RedisLock`` of the project; for it the hook given
        here returns an asyncio client.
        """
        from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock

        plan = Plan(self._settings, client, get_redis_connection, options)
        return described(AsyncRedisLock, plan, lock_name, get_lock_name)

    def force_release(
        self,
        lock_name: naming.LockName,
        identifier: str | None = None,
        *,
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> bool:
        """Let a lock go that somebody else holds: ``RedisLock.force_release`` by a name."""
        lock = self.lock(
            lock_name, client=client, get_redis_connection=get_redis_connection, **options
        )
        return lock.force_release(identifier)

    @overload
    def redis_lock(self, lock_name: F, /) -> F: ...

    @overload
    def redis_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: OnBusy = "raise",
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[F], F]: ...

    def redis_lock(
        self,
        lock_name: Any = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: OnBusy = "raise",
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> Any:
        """Run a function or method under a lock that each call names by its arguments.

        Works bare and called. Without a name the lock is named by the first argument as text.

        Args:
            lock_name: a template over the arguments, such as "stock:{self.warehouse}:{sku}", or
                several: all are held or none.
            get_lock_name: makes the name (or names) from the call's arguments.
            on_busy: what a call does when the lock is not free in time: "raise" a
                LockTimeoutError, "skip" (return None), or a function of the same arguments that
                gives the result.
            client: the Redis client; without it, the hook's.
            get_redis_connection: gives the client, instead of the project's hook.
            options: as for ``RedisLock``; durations in seconds.

        Raises:
            LockNameError: the template names an argument that the function lacks.
            ConfigurationError: an option is not usable, or this object cannot be decorated.
        """
        plan = Plan(self._settings, client, get_redis_connection, options)
        if lock_name is not None and not is_name(lock_name):
            return decorated(lock_name, plan, None, get_lock_name, on_busy)
        checked_busy(on_busy)
        plan.refuse_client(None)
        refuse_misplaced(lock_name, get_lock_name)
        naming.refuse_two_ways(lock_name, get_lock_name)
        return lambda function: decorated(function, plan, lock_name, get_lock_name, on_busy)


def of(settings: Settings) -> Locks:
    """The locks over settings that exist already."""
    locks = Locks.__new__(Locks)
    locks._settings = settings
    return locks


#: The locks behind the module-level names.
default = of(DEFAULT)
configure = default.configure
force_release = default.force_release
redis_lock = default.redis_lock
