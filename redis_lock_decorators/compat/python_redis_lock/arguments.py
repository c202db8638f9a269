"""The arguments of python-redis-lock's ``Lock``, checked."""

from __future__ import annotations

from base64 import b64encode
from os import urandom

from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.durations import checked_number
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.compat.python_redis_lock.errors import (
    InvalidTimeout,
    TimeoutNotUsable,
    TimeoutTooLarge,
)
from redis_lock_decorators.errors import ConfigurationError


def checked_id(given: str | bytes | None) -> str:
    """Return the id as text, in ASCII if it was given as bytes; None generates one."""
    if given is None:
        return b64encode(urandom(18)).decode()
    if isinstance(given, bytes) and given:
        return given.decode() if given.isascii() else b64encode(given).decode()
    if isinstance(given, str) and given:
        return given
    if not given:
        raise ConfigurationError(f"id={given!r}: give text or bytes, not empty, or None")
    raise TypeError(f"id={given!r:.40}: give text or bytes")


def checked_name(name: str) -> str:
    """Return the name of a lock."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r:.40}: give text")
    return name


def checked_expire(expire: float | None) -> float | None:
    """Return the time to live; 0 means None, as in python-redis-lock."""
    if expire is None or checked_number("expire", expire) == 0:
        return None
    return durations.checked_expire(expire)


def checked_signal_expire(milliseconds: int) -> int:
    """Return how long a release notifies processes; 0 for not at all."""
    longest = 1000 * int(durations.LONGEST_EXPIRE)
    if not isinstance(milliseconds, int) or not 0 <= milliseconds <= longest:
        raise ConfigurationError(
            f"signal_expire={shown_value(milliseconds)}: give whole milliseconds, 0 to {longest}"
        )
    return milliseconds


def refuse_timeout(blocking: bool, timeout: float | None, longest: float | None) -> None:
    """Refuse the timeout of an ``acquire`` call as python-redis-lock does."""
    if timeout is not None:
        checked_number("timeout", timeout)
    if not blocking and timeout is not None:
        raise TimeoutNotUsable("timeout=… has no effect with blocking=False: give one of them")
    if timeout and not timeout >= 0:
        raise InvalidTimeout(f"timeout={timeout!r}: give seconds, above 0")
    if timeout and longest and timeout > longest:
        raise TimeoutTooLarge(
            f"timeout={timeout!r} is longer than expire={longest!r}: use auto_renewal=True"
        )
