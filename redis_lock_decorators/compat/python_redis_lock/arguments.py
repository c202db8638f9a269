"""The arguments of python-redis-lock's ``Lock``, checked."""

from __future__ import annotations

from base64 import b64encode
from os import urandom

from redis_lock_decorators.compat.python_redis_lock.errors import (
    InvalidTimeout,
    TimeoutNotUsable,
    TimeoutTooLarge,
)


def checked_id(given: str | bytes | None) -> str:
    """Return the id as text, in ASCII if it was given as bytes; None generates one."""
    if given is None:
        return b64encode(urandom(18)).decode()
    if isinstance(given, bytes):
        return given.decode() if given.isascii() else b64encode(given).decode()
    if isinstance(given, str):
        return given
    raise TypeError(f"id={given!r:.40}: give text or bytes")


def checked_name(name: str) -> str:
    """Return the name of a lock."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r:.40}: give text")
    return name


def checked_expire(expire: float | None) -> float | None:
    """Return the time to live; 0 means None, as in python-redis-lock."""
    if expire is not None and not isinstance(expire, int | float):
        raise TypeError(f"expire={expire!r:.40}: give a number of seconds, or None")
    if expire and expire < 0:
        raise ValueError(f"expire={expire!r}: give seconds, above 0, or None")
    return expire or None


def refuse_timeout(blocking: bool, timeout: float | None, longest: float | None) -> None:
    """Refuse the timeout of an ``acquire`` call as python-redis-lock does."""
    if not blocking and timeout is not None:
        raise TimeoutNotUsable("timeout=… has no effect with blocking=False: give one of them")
    if timeout and timeout < 0:
        raise InvalidTimeout(f"timeout={timeout!r}: give seconds, above 0")
    if timeout and longest and timeout > longest:
        raise TimeoutTooLarge(
            f"timeout={timeout!r} is longer than expire={longest!r}: use auto_renewal=True"
        )
