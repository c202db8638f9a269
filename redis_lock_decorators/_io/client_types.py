"""Clients and what gives them, as type checkers see them.

The clients of redis-py are known by name. Others, such as those of valkey-py and wrappers, are
known by what they have: ``execute_command``, and a ``connection_pool`` that tells the two worlds
apart, which ``execute_command`` without annotations does not.
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
    """Connections that block."""

    def disconnect(self) -> None: ...


class AsyncPool(Protocol):
    """Connections of asyncio."""

    def disconnect(self) -> Awaitable[object]: ...


# The first argument is named apart, as no class, in the place of an object, has it so.


class BlockingLike(Protocol):
    """What works as a blocking client."""

    @property
    def connection_pool(self) -> BlockingPool: ...

    def execute_command(
        self, command: str, /, *args: str | bytes | float, **options: Any
    ) -> Any: ...


class AsyncLike(Protocol):
    """What works as a client of asyncio."""

    @property
    def connection_pool(self) -> AsyncPool: ...

    def execute_command(
        self, command: str, /, *args: str | bytes | float, **options: Any
    ) -> Awaitable[Any]: ...


if TYPE_CHECKING:
    #: A blocking client.
    BlockingClient: TypeAlias = Redis | RedisCluster | BlockingLike
    #: A client of asyncio.
    AsyncClient: TypeAlias = AsyncRedis | AsyncRedisCluster | AsyncLike
else:  # redis-py 3.5 has not all of them
    BlockingClient = AsyncClient = Any

#: Gives a project's client; called at the first use of a lock.
BlockingFactory = Callable[[], BlockingClient]
AsyncFactory = Callable[[], AsyncClient]
