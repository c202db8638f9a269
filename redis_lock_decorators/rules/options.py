"""What a lock can be told, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import six

from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.rules import durations

ReleaseMethod = Literal["script", "transaction", "native"]


@dataclass(frozen=True, eq=False)
class Options:
    """The checked options of a lock; durations in seconds.

    Attributes:
        wait: ``acquire_time`` as a number: infinity for None.
        ttl: ``expire`` in whole milliseconds, rounded up.
    """

    acquire_time: float | None = 10
    expire: float = 10
    delta: float = 0.005
    prefix: str = "sys:lock:"
    release_method: ReleaseMethod = "script"
    wait: float = field(init=False)
    ttl: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wait", durations.checked_acquire_time(self.acquire_time))
        object.__setattr__(self, "expire", durations.checked_expire(self.expire))
        object.__setattr__(self, "ttl", durations.milliseconds(self.expire))
        object.__setattr__(self, "prefix", checked_prefix(self.prefix))
        durations.checked_delta(self.delta)
        checked_method(self.release_method)


def checked_prefix(prefix: object) -> str:
    """What stands before every lock name of a project; may be empty."""
    if not isinstance(prefix, (str, bytes)):
        raise ConfigurationError(f"prefix={prefix!r}: give text such as 'billing:'")
    try:
        return str(six.ensure_str(six.ensure_binary(prefix)))
    except UnicodeError:
        raise ConfigurationError(f"prefix={prefix!a}: it cannot be written as UTF-8") from None


def checked_method(method: object) -> ReleaseMethod:
    """How a lock is let go: one of the names in ``ReleaseMethod``."""
    for known in get_args(ReleaseMethod):
        if method == known:
            return known  # type: ignore[no-any-return]  # get_args forgets the literals
    raise ConfigurationError(f"{method!r} is no release method: {get_args(ReleaseMethod)}")
