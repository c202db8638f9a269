"""``redis_lock``: the decorator, with and without arguments."""

# Overloads distinguish functions by their return type, so later signatures include earlier ones.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from redis_lock_decorators._dispatch import decorated
from redis_lock_decorators._io.client_checks import refuse_misplaced
from redis_lock_decorators._io.client_types import (
    AsyncClient,
    AsyncFactory,
    BlockingClient,
    BlockingFactory,
)
from redis_lock_decorators._rules import naming
from redis_lock_decorators._rules.keys import is_name
from redis_lock_decorators._rules.on_busy import OnBusy, checked_busy
from redis_lock_decorators._shared.decorator_types import (
    Answering,
    AsyncItems,
    Locked,
    Raising,
    Skipping,
    Unknown,
    Wrapped,
)
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.settings import LockOptions, Settings
from redis_lock_decorators._shared.wrong_with import WrongWith
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.redislock import RedisLock

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Never, Unpack

    from redis_lock_decorators._rules.options import Hook, OnLost, ReleaseMethod, Wait
    from redis_lock_decorators._rules.owner_info import OwnerInfoOption
    from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock

    Client: TypeAlias = BlockingClient | AsyncClient
    Factory: TypeAlias = BlockingFactory | AsyncFactory

P = ParamSpec("P")
R = TypeVar("R")


class RedisLockDecorator:
    """The base of ``Locks`` with the decorator."""

    _settings: Settings

    # Every option is written out once, for editors, which complete no keywords from a TypedDict.
    @overload
    def redis_lock(self, function: Wrapped, /) -> Wrapped: ...

    @overload
    def redis_lock(
        self,
        function: Callable[P, Never],
        /,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: OnBusy = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked[..., Any, RedisLock]: ...

    @overload
    def redis_lock(self, function: Callable[P, Unknown], /) -> Locked[P, Any, Any]: ...

    @overload
    def redis_lock(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Literal["raise"] = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked[P, Coroutine[Any, Any, R], AsyncRedisLock]: ...

    @overload
    def redis_lock(
        self,
        function: Callable[P, AsyncItems],
        /,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Literal["raise"] = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked[P, AsyncItems, AsyncRedisLock]: ...

    @overload
    def redis_lock(
        self,
        function: Callable[P, R],
        /,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Literal["raise"] = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked[P, R, RedisLock]: ...

    @overload
    def redis_lock(
        self,
        function: Callable[P, Any],
        /,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: OnBusy,
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked[P, Any, Any]: ...

    @overload
    def redis_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Literal["raise"] = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
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
    ) -> Raising: ...

    @overload
    def redis_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Literal["skip"],
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Skipping: ...

    @overload
    def redis_lock(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: Callable[..., R],
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Answering[R]: ...

    def redis_lock(
        self,
        lock_name: Any = None,
        get_lock_name: naming.GetLockName | None = None,
        *,
        on_busy: OnBusy = "raise",
        client: Client | None = None,
        get_redis_connection: Factory | None = None,
        **options: Unpack[LockOptions],
    ) -> Any:
        """Run each call of a function or method under a lock that its arguments name.

        Usable with and without parentheses. The default name is the first argument as text.

        Args:
            lock_name: a template over the arguments, such as "stock:{self.warehouse}:{sku}", or
                several: all of the locks are acquired or none.
            get_lock_name: returns the name (or names) for the call's arguments.
            on_busy: what a call does if the lock is not free in time: "raise" LockTimeoutError,
                "skip" (return None), or a function of the same arguments that returns the result.
            client: the Redis client; by default the project's.
            get_redis_connection: returns the client; by default the project's function.
            options: as for ``RedisLock``, durations in seconds: acquire_time, expire, prefix,
                delta, release_method, auto_renew, max_hold, min_hold, on_lost, cancel_on_lost,
                fencing, replicas, wait, hooks,
                owner_info.

        Raises:
            LockNameError: the template is invalid, or uses a parameter that the function lacks.
            ConfigurationError: an option is invalid, or the object cannot be decorated.
        """
        if not isinstance(self, RedisLockDecorator):
            raise ConfigurationError(
                "Locks.redis_lock is used by an object: locks = Locks(…), then @locks.redis_lock(…)"
            )
        try:
            config = LockConfig(self._settings, client, get_redis_connection, options)
        except ConfigurationError as error:
            naming.add_lock(error, lock_name, "@redis_lock")
            raise
        if lock_name is not None and not is_name(lock_name):
            return decorated(lock_name, config, None, get_lock_name, on_busy)
        checked_busy(on_busy)
        config.refuse_client(None)
        refuse_misplaced(lock_name, get_lock_name)
        naming.refuse_two_ways(lock_name, get_lock_name)
        return Decorator(
            lambda function: decorated(function, config, lock_name, get_lock_name, on_busy)
        )


class Decorator:
    """What ``redis_lock(…)`` returns for a name: it decorates one function or several."""

    __slots__ = ("_decorate",)

    __enter__ = WrongWith(
        "redis_lock(…) is a decorator; a block takes: with RedisLock(…) as lease:",
    )
    __aenter__ = WrongWith(
        "redis_lock(…) is a decorator; a block takes: async with RedisLock(…) as lease:, of "
        "redis_lock_decorators.asyncio"
    )

    def __init__(self, decorate: Callable[[Any], Any]) -> None:
        self._decorate = decorate

    def __call__(self, function: Any) -> Any:
        return self._decorate(function)
