"""The arguments of redis-py's ``Lock``, checked."""

from __future__ import annotations

import math
from typing import Any

import six

from redis_lock_decorators._io.client_methods import as_sent
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import checked_key
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError, LockNameError


def key_of(client: Any, name: object) -> bytes:
    """Return the Redis key of a name, encoded as the client would send it."""
    key = b""
    if isinstance(name, (bytes, bytearray, memoryview)):
        key = bytes(name)
    elif isinstance(name, (int, float)) and not isinstance(name, bool):
        key = repr(name).encode()
    elif isinstance(name, str):
        try:
            key = as_sent(client, name)
        except UnicodeEncodeError:
            raise LockNameError(
                f"the lock name {name!a:.80} cannot be encoded: give text that is valid Unicode, "
                "or bytes"
            ) from None
    if not key:
        raise LockNameError(
            f"{shown_value(name)} is not a lock name: give text or bytes, not empty"
        )
    return checked_key(key)


def checked_token(token: object) -> str:
    """Return a token, given as text or as UTF-8 bytes, as text."""
    try:
        if token and isinstance(token, (str, bytes)):
            return str(six.ensure_str(six.ensure_binary(token)))
    except UnicodeError:
        pass
    raise ConfigurationError(f"token={token!r:.40}: give text, or bytes that are UTF-8")


def checked_blocking(blocking: object) -> bool:
    """Return a bool; a number is probably meant for another positional argument."""
    if not isinstance(blocking, bool):
        raise ConfigurationError(
            f"blocking={shown_value(blocking)}: give True or False (give the pause by its name: "
            "sleep=…)"
        )
    return blocking


def checked_timeout(seconds: object, argument: str = "timeout") -> float:
    """Return a number of seconds greater than 0 and at most ``LONGEST_EXPIRE``."""
    number = _number(argument, seconds)
    if not 0 < number <= durations.LONGEST_EXPIRE:
        longest = f"{durations.LONGEST_EXPIRE:.0f} s"
        raise ConfigurationError(
            f"{argument}={shown_value(seconds)}: give more than 0 and at most {longest}"
        )
    return number


def checked_sleep(seconds: object) -> float:
    """Return a number of seconds greater than 0 and at most an hour."""
    number = _number("sleep", seconds)
    if not 0 < number <= 3600:
        raise ConfigurationError(
            f"sleep={shown_value(seconds)}: give more than 0 and at most 3600 s"
        )
    return number


def checked_seconds(argument: str, seconds: object) -> float:
    """Return a number of seconds, 0 or more."""
    number = _number(argument, seconds)
    if not number >= 0:
        raise ConfigurationError(f"{argument}={shown_value(seconds)}: give 0 s or more")
    return number


def _number(argument: str, seconds: object) -> float:
    """Return a number; it may be infinite or NaN."""
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        if abs(seconds) > 1e300:
            return math.inf if seconds > 0 else -math.inf
        return float(seconds)
    raise ConfigurationError(f"{argument}={shown_value(seconds)}: give a number of seconds")
