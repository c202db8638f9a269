"""The simple recipe as functions: an identifier in, a yes or no out."""

from __future__ import annotations

from typing import Literal, overload

from redis_lock_decorators._flow import functions
from redis_lock_decorators._flow.acquire import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.options import ReleaseMethod, checked_method
from redis_lock_decorators._shared.function_args import acquire_arguments, owned, refuse_none
from redis_lock_decorators._shared.settings import DEFAULT


@overload
def acquire_lock(
    conn: BlockingClient,
    lock_name: str,
    acquire_time: None,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = "sys:lock:",
) -> str: ...


@overload
def acquire_lock(
    conn: BlockingClient,
    lock_name: str,
    acquire_time: float | None = 10,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = "sys:lock:",
) -> str | Literal[False]: ...


def acquire_lock(
    conn: BlockingClient,
    lock_name: str,
    acquire_time: float | None = 10,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = "sys:lock:",
) -> str | Literal[False]:
    """Take a lock by ``SET key identifier NX PX``; no threads, no extra keys, no renewal.

    Args:
        conn: a blocking Redis client, of a single server, Sentinel or a cluster.
        lock_name: what to lock; the key is ``prefix + lock_name``.
        acquire_time: the longest wait, in seconds; 0 tries once, None waits for ever.
        expire: seconds after which the lock frees itself.
        delta: seconds between two tries, on average.
        identifier: a value of your own, unique to this acquisition; a random one if None.
            With your own, a request whose reply is lost counts as refused until it expires.

    Returns:
        The identifier to release with, or False if the lock was not free in time.

    Raises:
        LockNameError, ConfigurationError: an argument is not usable.
        redis.exceptions.ConnectionError: the server cannot be reached.
    """
    refuse_none(conn)
    port = DEFAULT.port(conn, None)
    claim, wait, pause = acquire_arguments(
        lock_name, acquire_time, expire, delta, identifier, prefix
    )
    try:
        taken = run(functions.acquire_lock(port, claim, wait, pause))
        return claim.identifier if taken else False
    except BaseException:
        if claim.is_live(port.now()):  # interrupted on its last lines
            run(undo(port, claim))
        raise


def release_lock(
    conn: BlockingClient,
    lock_name: str,
    identifier: str,
    *,
    method: ReleaseMethod | None = None,
    prefix: str = "sys:lock:",
) -> bool:
    """Let a lock go if it is still ours.

    Args:
        method: "transaction" (WATCH, MULTI, EXEC: the default), "script" (Lua: the default on a
            cluster, and for a client without ``pipeline``) or "native" (one command: Valkey 9.0,
            Redis 8.4).

    Returns:
        True if the lock was deleted or is gone already; False if another holds it.

    Raises:
        ConfigurationError: the client or the server lacks the method.
        redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
    """
    refuse_none(conn)
    port = DEFAULT.port(conn, None)
    way = None if method is None else checked_method(method, "method")
    claim = owned(lock_name, identifier, 1, prefix)
    return run(functions.release_lock(port, claim, way))


def extend_lock(
    conn: BlockingClient,
    lock_name: str,
    identifier: str,
    expire: float,
    *,
    prefix: str = "sys:lock:",
) -> bool:
    """Let a lock that is still ours live at least ``expire`` seconds from now.

    Returns:
        True if it does; False if the lock is gone or another holds it.

    Raises:
        redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
    """
    refuse_none(conn)
    port = DEFAULT.port(conn, None)
    claim = owned(lock_name, identifier, expire, prefix)
    return run(functions.extend_lock(port, claim))
