"""Plain functions: ``acquire_lock``, ``extend_lock`` and ``release_lock``."""

from __future__ import annotations

from typing import Literal, overload

from redis_lock_decorators._flow import functions
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.keys import DEFAULT_PREFIX
from redis_lock_decorators._rules.options import ReleaseMethod, checked_method
from redis_lock_decorators._shared.function_args import acquire_arguments, owned, refuse_no_client
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
    prefix: str = DEFAULT_PREFIX,
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
    prefix: str = DEFAULT_PREFIX,
) -> str | Literal[False]: ...


def acquire_lock(
    conn: BlockingClient,
    lock_name: str,
    acquire_time: float | None = 10,
    expire: float = 10,
    delta: float = 0.005,
    *,
    identifier: str | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> str | Literal[False]:
    """Acquire a lock by ``SET key identifier NX PX``; no threads, no extra keys, no renewal.

    Args:
        conn: a blocking Redis client, of a single server, Sentinel or a cluster.
        lock_name: the name to lock; the key is ``prefix + lock_name``.
        acquire_time: the longest wait, in seconds; 0 tries once, None waits indefinitely.
        expire: the time to live of the lock, in seconds.
        delta: the average pause between two tries, in seconds.
        identifier: a value that is unique to this acquisition; None generates one. With a value of
            your own, a request whose reply is lost counts as refused until the lock expires.
        prefix: the text before the name in the Redis key.

    Returns:
        The identifier to release with, or False if the lock was not free in time.

    Raises:
        LockNameError, ConfigurationError: an argument is invalid.
        redis.exceptions.ConnectionError: the server cannot be reached.
    """
    refuse_no_client(conn)
    port = DEFAULT.port(conn, None)
    claim, wait, pause = acquire_arguments(
        lock_name, acquire_time, expire, delta, identifier, prefix
    )
    try:
        is_acquired = run(functions.acquire_lock(port, claim, wait, pause))
        return claim.identifier if is_acquired else False
    except BaseException:
        if claim.is_live(port.now()):  # interrupted after the acquisition
            run(undo(port, claim))
        raise


def release_lock(
    conn: BlockingClient,
    lock_name: str,
    identifier: str,
    *,
    method: ReleaseMethod | None = None,
    prefix: str = DEFAULT_PREFIX,
) -> bool:
    """Release a lock if it has this identifier.

    A release that an exception from outside interrupts is completed, unless the identifier is one
    of your own and the request may have been sent: the next holder might have it too.

    Args:
        conn, lock_name, prefix: as for ``acquire_lock``, which returned ``identifier``.
        method: "transaction" (WATCH, MULTI, EXEC: the default), "script" (Lua: the default on a
            cluster, and for a client without ``pipeline``) or "native" (one command: Valkey 9.0,
            Redis 8.4).

    Returns:
        True if the lock was deleted or did not exist; False if another client holds it.

    Raises:
        LockNameError, ConfigurationError: an argument is invalid, or the client or the server does
            not have the method.
        redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
    """
    refuse_no_client(conn)
    port = DEFAULT.port(conn, None)
    checked = None if method is None else checked_method(method, "method")
    claim = owned(lock_name, identifier, 1, prefix)
    return run(functions.release_lock(port, claim, checked))


def extend_lock(
    conn: BlockingClient,
    lock_name: str,
    identifier: str,
    expire: float,
    *,
    prefix: str = DEFAULT_PREFIX,
) -> bool:
    """Extend a lock with this identifier to at least ``expire`` seconds from now.

    Args:
        conn, lock_name, prefix: as for ``acquire_lock``, which returned ``identifier``.
        expire: the new time to live of the lock, in seconds, unless it is longer already.

    Returns:
        True if it was extended; False if the lock does not exist or another client holds it.

    Raises:
        LockNameError, ConfigurationError: an argument is invalid.
        redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
    """
    refuse_no_client(conn)
    port = DEFAULT.port(conn, None)
    claim = owned(lock_name, identifier, expire, prefix)
    return run(functions.extend_lock(port, claim))
