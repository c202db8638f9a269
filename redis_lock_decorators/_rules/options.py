"""What a lock can be told, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import six

from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators.errors import ConfigurationError

T = TypeVar("T")
ReleaseMethod = Literal["script", "transaction", "native"]
Wait = Literal["queue", "poll", "cohort"]
#: Called with a lease that was lost, and why.
OnLost = Callable[[Any, str], object]
#: Seconds: what a waiter costs the others that is handed the lock and does not answer.
LONGEST_GRANT = 2.5
#: More than any Redis has.
MOST_REPLICAS = 1000


@dataclass(frozen=True, eq=False)
class Options:
    """The checked options of a lock; durations in seconds.

    Attributes:
        patience: ``acquire_time`` as a number: infinity for None.
        lease: how long a lease lives: ``expire``, but not longer than ``max_hold``.
        ttl: ``lease`` in whole milliseconds, rounded up.
        grain: how much earlier than due a lease may be renewed.
        grant: the milliseconds for which the lock is handed over in a queue at first.
        way: how a busy lock is waited for: ``wait``, but a lease that is not renewed is not passed
            on in a cohort, where the next would have only the rest of it.
        first_look: how long after it was taken somebody must look at a lease.
    """

    acquire_time: float | None = 10
    expire: float = 10
    delta: float = 0.005
    prefix: str = "sys:lock:"
    release_method: ReleaseMethod = "script"
    auto_renew: bool = True
    max_hold: float | None = None
    min_hold: float | None = None
    on_lost: OnLost | None = None
    cancel_on_lost: bool = True
    fencing: bool = False
    replicas: int = 0
    wait: Wait = "queue"
    patience: float = field(init=False)
    lease: float = field(init=False)
    ttl: int = field(init=False)
    grain: float = field(init=False)
    first_look: float = field(init=False)
    grant: int = field(init=False)
    way: Wait = field(init=False)

    def __post_init__(self) -> None:
        longest = durations.checked_hold("max_hold", self.max_hold)
        least = durations.checked_hold("min_hold", self.min_hold)
        expire = durations.checked_lease(self.expire)
        lease = expire if longest is None else min(expire, longest)
        object.__setattr__(self, "patience", durations.checked_acquire_time(self.acquire_time))
        object.__setattr__(self, "expire", expire)
        object.__setattr__(self, "lease", lease)
        object.__setattr__(self, "ttl", durations.milliseconds(lease))
        object.__setattr__(self, "grant", durations.milliseconds(min(lease, LONGEST_GRANT)))
        grain = lease_times.grain(lease)
        object.__setattr__(self, "grain", grain)
        object.__setattr__(self, "first_look", lease_times.first_look(lease))
        object.__setattr__(self, "prefix", checked_prefix(self.prefix))
        durations.checked_delta(self.delta)
        checked_method(self.release_method)
        checked_replicas(self.replicas)
        wait = checked_wait(self.wait)
        passes = self.auto_renew or wait != "cohort"
        object.__setattr__(self, "way", wait if passes else "queue")
        for switch in ("auto_renew", "cancel_on_lost", "fencing"):
            checked_switch(switch, getattr(self, switch))
        if self.on_lost is not None and not callable(self.on_lost):
            raise ConfigurationError(f"on_lost={self.on_lost!r:.80}: give a function (lease, why)")
        if least is not None and self.release_method == "native":
            raise ConfigurationError(
                "min_hold cannot be kept by release_method='native', which only deletes"
            )


def checked_prefix(prefix: object) -> str:
    """What stands before every lock name of a project; may be empty."""
    if not isinstance(prefix, (str, bytes)):
        raise ConfigurationError(f"prefix={prefix!r}: give text such as 'billing:'")
    try:
        return str(six.ensure_str(six.ensure_binary(prefix)))
    except UnicodeError:
        raise ConfigurationError(f"prefix={prefix!a}: it cannot be written as UTF-8") from None


def checked_method(method: object, option: str = "release_method") -> ReleaseMethod:
    """How a lock is let go: one of the names in ``ReleaseMethod``."""
    return _one_of(get_args(ReleaseMethod), method, option)


def checked_switch(option: str, switch: object) -> bool:
    """True or False; what only counts as one of them is a mistake."""
    if not isinstance(switch, bool):
        raise ConfigurationError(f"{option}={switch!r:.80}: give True or False")
    return switch


def checked_replicas(replicas: object) -> int:
    """How many replicas must have a lock before it is held: a whole number, 0 for none."""
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise ConfigurationError(f"replicas={replicas!r:.80}: give a whole number")
    if not 0 <= replicas <= MOST_REPLICAS:
        raise ConfigurationError(f"replicas={replicas}: give 0 to {MOST_REPLICAS}")
    return replicas


def checked_wait(wait: object) -> Wait:
    """How a busy lock is waited for: one of the names in ``Wait``."""
    return _one_of(get_args(Wait), wait, "wait")


def _one_of(names: tuple[T, ...], name: object, option: str) -> T:
    for known in names:
        if name == known:
            return known
    raise ConfigurationError(
        f"{option}={name!r:.80}: give one of {', '.join([repr(known) for known in names])}"
    )
