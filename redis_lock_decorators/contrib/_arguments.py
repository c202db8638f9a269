"""Checks of arguments that several integrations take."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import redis

from redis_lock_decorators import ConfigurationError, Locks
from redis_lock_decorators._rules.durations import checked_number
from redis_lock_decorators.locks import default


def checked_seconds(option: str, value: Any) -> float:
    """Return a duration; refuse what is not a finite number of seconds above 0."""
    seconds = checked_number(option, value)
    if not 0 < seconds < math.inf:
        raise ConfigurationError(f"{option}={value!r:.80}: give a number of seconds, above 0")
    return float(seconds)


def checked_status(option: str, value: Any) -> int:
    """Return the status of a busy request; refuse what would not tell it that it has failed."""
    if type(value) is not int and not isinstance(value, IntEnum):
        raise ConfigurationError(f"{option}={value!r:.80}: give a number such as 423 or 409")
    if not 400 <= value <= 599:
        raise ConfigurationError(f"{option}={value!r:.80}: give a status of an error, 400 to 599")
    return int(value)


def checked_locks(locks: Any) -> Locks:
    """Return the project's locks, by default the module-level configuration."""
    if locks is None:
        return default
    if not isinstance(locks, Locks):
        raise ConfigurationError(
            f"locks is of type {type(locks).__name__}: give Locks, made with Locks(client=client)"
        )
    return locks


def checked_url(option: str, url: Any) -> str:
    """Return the URL of a server; a wrong value is not shown, as it may hold a password."""
    if not isinstance(url, str):
        raise ConfigurationError(
            f'{option} is of type {type(url).__name__}: give a text such as "redis://host"'
        )
    try:
        redis.ConnectionPool.from_url(url)
    except ValueError:  # it may name a part of the password
        raise ConfigurationError(
            f'{option} is not the URL of a Redis server: give one such as "redis://host:6379/0", '
            '"rediss://host" or "unix:///path"; encode special characters of a password as %XX'
        ) from None
    return url
