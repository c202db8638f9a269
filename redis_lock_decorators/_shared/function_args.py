"""The arguments of ``acquire_lock`` and the other functions, checked."""

from __future__ import annotations

import six

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import checked_name, refuse_other_spelling
from redis_lock_decorators._rules.options import checked_prefix
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError


def refuse_no_client(conn: object, argument: str = "conn") -> None:
    """Refuse None and text as a client: the result of a failed function, or a misplaced name.

    Raises:
        ConfigurationError: it is None or text.
    """
    if conn is None:
        raise ConfigurationError(
            f"{argument}=None: give a Redis client (only RedisLock uses the configured one by "
            "default)"
        )
    if isinstance(conn, (str, bytes)):  # not shown: a URL may hold a password
        raise ConfigurationError(
            f"{type(conn).__name__} is no Redis client: the client comes first, then the "
            "name; give one, as in redis.Redis.from_url(…) or redis.asyncio.Redis.from_url(…)"
        )


def acquire_arguments(
    lock_name: str,
    acquire_time: float | None,
    expire: float,
    delta: float,
    identifier: str | None,
    prefix: str,
) -> tuple[Claim, float, float]:
    """Return the claim, the longest wait and the pause of an ``acquire_lock`` call."""
    wait = durations.checked_acquire_time(acquire_time)
    pause = durations.checked_delta(delta)
    own = None if identifier is None else checked_identifier(identifier)
    return _claim(lock_name, prefix, expire, own), wait, pause


def owned(lock_name: str, identifier: str, expire: float, prefix: str) -> Claim:
    """Return the claim of the holder of an identifier."""
    return _claim(lock_name, prefix, expire, checked_identifier(identifier))


def checked_identifier(identifier: object) -> str:
    """Return an identifier as text; False, the result of a failed ``acquire_lock``, is refused."""
    return _identifier(identifier, "strict")


def found_identifier(identifier: object) -> str:
    """Return an identifier that was found in a key, where another program may write any bytes."""
    return _identifier(identifier, "surrogateescape")


def _identifier(identifier: object, errors: str) -> str:
    if not isinstance(identifier, (str, bytes)) or not identifier:
        raise ConfigurationError(
            f"identifier={shown_value(identifier, 40)}: give the text that acquire_lock returned "
            "(False there means that the lock was not acquired)"
        )
    try:
        return str(six.ensure_str(six.ensure_binary(identifier, errors=errors), errors=errors))
    except UnicodeError:
        raise ConfigurationError(
            f"identifier={identifier!a:.40} is not valid UTF-8: give the text that acquire_lock "
            "returned"
        ) from None


def _claim(lock_name: str, prefix: str, expire: float, identifier: str | None) -> Claim:
    names = (checked_name(lock_name),)
    if not prefix:
        refuse_other_spelling(lock_name)
    seconds = durations.checked_expire(expire)
    expire_ms = durations.milliseconds(seconds)
    return Claim(names, checked_prefix(prefix), seconds, expire_ms, identifier=identifier)
