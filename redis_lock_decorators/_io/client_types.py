"""The types of clients and factories for type checkers.

redis-py's clients are listed by name. Others, such as valkey-py's and wrappers, match a protocol:
``execute_command``, and a ``connection_pool`` whose ``disconnect`` is async or not. The latter
distinguishes asyncio clients, as an ``execute_command`` without annotations does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

    from redis import Redis, RedisCluster
    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio import RedisCluster as AsyncRedisCluster


class BlockingPool(Protocol):
    """A pool of blocking connections."""

    def disconnect(self) -> None: ...


class AsyncPool(Protocol):
    """A pool of asyncio connections."""

    def disconnect(self) -> Awaitable[object]: ...


# ``command`` is a separate parameter, so that a class that is given instead of an object does not
# match: its unbound method takes ``self`` first.


class BlockingLike(Protocol):
    """An object that can be used as a blocking client."""

    @property
    def connection_pool(self) -> BlockingPool: ...

    def execute_command(
        self, command: str, /, *args: str | bytes | float, **options: Any
    ) -> Any: ...


class AsyncLike(Protocol):
    """An object that can be used as an asyncio client."""

    @property
    def connection_pool(self) -> AsyncPool: ...

    def execute_command(
        self, command: str, /, *args: str | bytes | float, **options: Any
    ) -> Awaitable[Any]: ...


if TYPE_CHECKING:
    #: A blocking client.
    BlockingClient: TypeAlias = Redis | RedisCluster | BlockingLike
    #: An asyncio client.
    AsyncClient: TypeAlias = AsyncRedis | AsyncRedisCluster | AsyncLike
else:  # redis-py 3.5 lacks some of them
    BlockingClient = AsyncClient = Any

#: Returns a project's client; called at the first use of a lock.
BlockingFactory = Callable[[], BlockingClient]
AsyncFactory = Callable[[], AsyncClient]
