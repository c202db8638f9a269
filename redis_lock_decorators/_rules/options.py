"""The options of a lock, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import six

from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators._rules.callables import Kind, kind_of
from redis_lock_decorators._rules.fitting import fits
from redis_lock_decorators._rules.keys import DEFAULT_PREFIX
from redis_lock_decorators._rules.owner_info import OwnerInfoOption, checked_owner_info
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

T = TypeVar("T")
ReleaseMethod = Literal["script", "transaction", "native"]
Wait = Literal["queue", "poll", "cohort"]
#: Called with the lost lease and the reason.
OnLost = Callable[[Any, str], object]
#: Called with each event, a ``LockEvent``.
Hook = Callable[[Any], object]
#: In seconds. A waiter that crashed after it was granted the lock delays the others by this long.
LONGEST_GRANT = 2.5
#: More than any deployment has; a larger number is a mistake.
MOST_REPLICAS = 1000


@dataclass(frozen=True, eq=False)
class Options:
    """The checked options of a lock; durations in seconds.

    Attributes:
        max_wait: ``acquire_time`` as a number; infinity for None.
        lease_seconds: the time to live of a lease: the smaller of ``expire`` and ``max_hold``.
        expire_ms: ``lease_seconds`` in whole milliseconds, rounded up.
        grain: how much earlier than due a lease may be renewed.
        first_check: how long after the acquisition the renewer first checks the lease.
        grant_ms: the time to live of a grant, which the waiter extends when it enters.
        wait_strategy: ``wait``, except that "cohort" needs ``auto_renew``: without renewal each
            member would get only the remainder of the lease.
        of_renewal: the same without ``on_lost`` and ``hooks``, if there are any: what the renewer
            refers to must not refer to the lease. It is not set otherwise.
    """

    acquire_time: float | None = 10
    expire: float = 10
    delta: float = 0.005
    prefix: str = DEFAULT_PREFIX
    release_method: ReleaseMethod = "script"
    auto_renew: bool = True
    max_hold: float | None = None
    min_hold: float | None = None
    on_lost: OnLost | None = None
    cancel_on_lost: bool = True
    fencing: bool = False
    replicas: int = 0
    wait: Wait = "queue"
    hooks: Sequence[Hook] = ()
    owner_info: OwnerInfoOption = False
    max_wait: float = field(init=False)
    lease_seconds: float = field(init=False)
    expire_ms: int = field(init=False)
    grain: float = field(init=False)
    first_check: float = field(init=False)
    grant_ms: int = field(init=False)
    wait_strategy: Wait = field(init=False)
    of_renewal: Options = field(init=False, repr=False)

    def __post_init__(self) -> None:
        longest = durations.checked_hold("max_hold", self.max_hold)
        least = durations.checked_hold("min_hold", self.min_hold)
        expire = durations.checked_lease(self.expire)
        lease = expire if longest is None else min(expire, longest)
        object.__setattr__(self, "max_wait", durations.checked_acquire_time(self.acquire_time))
        object.__setattr__(self, "expire", expire)
        object.__setattr__(self, "lease_seconds", lease)
        object.__setattr__(self, "expire_ms", durations.milliseconds(lease))
        object.__setattr__(self, "grant_ms", durations.milliseconds(min(lease, LONGEST_GRANT)))
        grain = lease_times.grain(lease)
        object.__setattr__(self, "grain", grain)
        object.__setattr__(self, "first_check", lease_times.first_check(lease))
        object.__setattr__(self, "prefix", checked_prefix(self.prefix))
        durations.checked_delta(self.delta)
        checked_method(self.release_method)
        checked_replicas(self.replicas)
        wait = checked_wait(self.wait)
        is_usable = self.auto_renew or wait != "cohort"
        object.__setattr__(self, "wait_strategy", wait if is_usable else "queue")
        for switch in ("auto_renew", "cancel_on_lost", "fencing"):
            checked_switch(switch, getattr(self, switch))
        checked_on_lost(self.on_lost)
        object.__setattr__(self, "hooks", checked_hooks(self.hooks))
        checked_owner_info(self.owner_info)
        if least is not None and self.release_method == "native":
            raise ConfigurationError(
                "min_hold does not work with release_method='native', which can only delete the "
                "key: use 'script' or 'transaction'"
            )
        if self.on_lost is not None or self.hooks:
            unreported = copy(self)
            object.__setattr__(unreported, "on_lost", None)
            object.__setattr__(unreported, "hooks", ())
            object.__setattr__(self, "of_renewal", unreported)


def checked_prefix(prefix: object) -> str:
    """Return the prefix of the Redis keys as text; it may be empty."""
    if not isinstance(prefix, (str, bytes)):
        raise ConfigurationError(f"prefix={shown_value(prefix)}: give text such as 'billing:'")
    try:
        return str(six.ensure_str(six.ensure_binary(prefix)))
    except UnicodeError:
        raise ConfigurationError(f"prefix={prefix!a:.80}: it cannot be written as UTF-8") from None


def checked_on_lost(on_lost: object) -> None:
    """Refuse what cannot be called with the lost lease and the reason."""
    if on_lost is None:
        return
    problem = ""
    if not callable(on_lost):
        problem = "cannot be called"
    elif isinstance(on_lost, type) and issubclass(on_lost, BaseException):
        problem = "is an error, which would be made but not raised"
    elif not fits(on_lost, (None, "")):
        problem = "does not take the two arguments of its call"
    if problem:
        raise ConfigurationError(
            f"on_lost={shown_value(on_lost)} {problem}: give a function (lease, why), as in "
            "on_lost=lambda lease, why: event.set()"
        )


def checked_hooks(hooks: object) -> tuple[Hook, ...]:
    """Return the hooks as a tuple; what cannot be called with one event is refused."""
    if not isinstance(hooks, (list, tuple)):
        raise ConfigurationError(
            f"hooks={shown_value(hooks)}: give a list of functions, as in hooks=[log_events]"
        )
    for hook in hooks:
        problem = ""
        if not callable(hook):
            problem = "cannot be called"
        elif (kind := kind_of(hook)) is not Kind.PLAIN:
            problem = f"is {kind.value}, whose body would not run"
        elif not fits(hook, (None,)):
            problem = "does not take the event as its one argument"
        if problem:
            raise ConfigurationError(
                f"hooks: {shown_value(hook)} {problem}: give a function (event), as log_events of "
                "redis_lock_decorators.events"
            )
    return tuple(hooks)


def checked_method(method: object, option: str = "release_method") -> ReleaseMethod:
    """Return the release method, one of ``ReleaseMethod``."""
    return _one_of(get_args(ReleaseMethod), method, option)


def checked_switch(option: str, switch: object) -> bool:
    """Return a boolean option; other truthy or falsy values are refused."""
    if not isinstance(switch, bool):
        raise ConfigurationError(f"{option}={shown_value(switch)}: give True or False")
    return switch


def checked_replicas(replicas: object) -> int:
    """Return how many replicas must confirm an acquisition; 0 for none."""
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise ConfigurationError(f"replicas={shown_value(replicas)}: give an integer")
    if not 0 <= replicas <= MOST_REPLICAS:
        raise ConfigurationError(f"replicas={shown_value(replicas)}: give 0 to {MOST_REPLICAS}")
    return replicas


def checked_wait(wait: object) -> Wait:
    """Return the way to wait for a busy lock, one of ``Wait``."""
    return _one_of(get_args(Wait), wait, "wait")


def _one_of(names: tuple[T, ...], name: object, option: str) -> T:
    for known in names:
        if name == known:
            return known
    raise ConfigurationError(
        f"{option}={shown_value(name)}: give one of {', '.join([repr(known) for known in names])}"
    )
