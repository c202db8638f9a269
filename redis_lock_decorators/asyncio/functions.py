"""Plain functions for ``redis.asyncio`` clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from redis_lock_decorators._flow import functions
from redis_lock_decorators._flow.identifiers import is_generated
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.background.finishing import finish
from redis_lock_decorators._io.client_types import AsyncClient, AsyncFactory
from redis_lock_decorators._rules.keys import DEFAULT_PREFIX
from redis_lock_decorators._rules.naming import LockName
from redis_lock_decorators._rules.options import ReleaseMethod, checked_method
from redis_lock_decorators._shared.function_args import acquire_arguments, owned, refuse_no_client
from redis_lock_decorators._shared.settings import DEFAULT, KeywordOptions
from redis_lock_decorators.asyncio.redislock import RedisLock

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
async def acquire_lock(
    conn: AsyncClient,
    lock_name: str,
    acquire_time: None,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> str: ...


@overload
async def acquire_lock(
    conn: AsyncClient,
    lock_name: str,
    acquire_time: float | None = 10,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> str | Literal[False]: ...


async def acquire_lock(
    conn: AsyncClient,
    lock_name: str,
    acquire_time: float | None = 10,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> str | Literal[False]:
    """Acquire a lock by ``SET key identifier NX PX``; no threads, no extra keys, no renewal.

    The arguments, result and errors of ``redis_lock_decorators.acquire_lock``.
    """
    refuse_no_client(conn)
    port = DEFAULT.async_port(conn, None)
    claim, wait, pause = acquire_arguments(
        lock_name, acquire_time, expire, delta, identifier, prefix
    )
    try:
        is_acquired = await functions.acquire_lock(port, claim, wait, pause)
        return claim.identifier if is_acquired else False
    except BaseException:
        if claim.is_live(port.now()):  # interrupted after the acquisition
            await undo(port, claim)
        raise


async def release_lock(
    conn: AsyncClient,
    lock_name: str,
    identifier: str,
    *,
    method: ReleaseMethod | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> bool:
    """Release a lock if it has this identifier.

    The arguments, result and errors of ``redis_lock_decorators.release_lock``.
    """
    refuse_no_client(conn)
    port = DEFAULT.async_port(conn, None)
    checked = None if method is None else checked_method(method, "method")
    claim = owned(lock_name, identifier, 1, prefix)
    release = partial(functions.release_lock, port, claim, checked)
    if is_generated(claim.identifier):
        return await release()
    return await _completed(release)


async def _completed(release: Callable[[Callable[[], bool]], Awaitable[bool]]) -> bool:
    """Complete a release though it is cancelled, and start it once only.

    Once its caller has returned it repeats no request: the next holder might have its identifier.
    """
    outcomes: list[bool | Exception | None] = []
    is_awaited = True

    async def once() -> None:
        if outcomes:
            return
        outcomes.append(None)
        try:
            outcomes.append(await release(lambda: is_awaited))
        except Exception as error:
            outcomes.append(error)

    try:
        await finish(once)
    finally:
        is_awaited = False
    if isinstance(outcome := outcomes[-1], Exception):
        raise outcome
    return bool(outcome)


async def extend_lock(
    conn: AsyncClient,
    lock_name: str,
    identifier: str,
    expire: float,
    *,
    prefix: str = DEFAULT_PREFIX,
) -> bool:
    """Extend a lock with this identifier to at least ``expire`` seconds from now.

    The arguments, result and errors of ``redis_lock_decorators.extend_lock``.
    """
    refuse_no_client(conn)
    port = DEFAULT.async_port(conn, None)
    claim = owned(lock_name, identifier, expire, prefix)
    return await functions.extend_lock(port, claim)


async def force_release(
    lock_name: LockName,
    identifier: str | None = None,
    *,
    client: AsyncClient | None = None,
    get_redis_connection: AsyncFactory | None = None,
    **options: Unpack[KeywordOptions],
) -> bool:
    """Release the lock of another holder: ``RedisLock.force_release`` by the lock's name."""
    lock = RedisLock(lock_name, client=client, get_redis_connection=get_redis_connection, **options)
    return await lock.force_release(identifier)
