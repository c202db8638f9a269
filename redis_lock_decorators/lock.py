"""RedisLock: a reusable description of a lock; each acquisition of it is a Lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from redis_lock_decorators.errors import LockError
from redis_lock_decorators.flow.extend import holders
from redis_lock_decorators.lease import Attempt, Lease, abandon, enter, innermost, unheld
from redis_lock_decorators.plan import Plan
from redis_lock_decorators.rules import naming
from redis_lock_decorators.rules.callables import refuse_unrun
from redis_lock_decorators.rules.durations import checked_acquire_time
from redis_lock_decorators.rules.keys import checked_names, key_of
from redis_lock_decorators.rules.options import ReleaseMethod
from redis_lock_decorators.settings import DEFAULT, OPTION_NAMES
from redis_lock_decorators.world.blocking import run
from redis_lock_decorators.world.connections import ConnectionFactory

P = ParamSpec("P")
R = TypeVar("R")


class _Configured:
    """Stands for a default that ``configure`` may change."""

    def __repr__(self) -> str:
        return "<configured>"


CONFIGURED: Any = _Configured()


class RedisLock:
    """A lock that one holder among all processes has at a time.

    The object only describes the lock: threads may share it and use it again and again.

    Args:
        lock_name: what to lock; several names are held all or none.
        get_lock_name: for ``call``: makes the name from the call's arguments.
        acquire_time: the longest wait, in seconds (10); 0 tries once, None waits for ever.
        expire: seconds a lease lives in Redis unless extended (10).
        client: the Redis client; without it, ``get_redis_connection`` or the configured hook.
        get_redis_connection: gives the client; called at first use, once per process.
        prefix: what stands before the name in the Redis key ("sys:lock:").
        delta: seconds between two tries, on average (0.005).
        release_method: "script", "transaction" (WATCH, not on a cluster) or "native".

    Raises:
        LockNameError: a name is empty or no text.
        ConfigurationError: an option is not usable.
    """

    __slots__ = ("__weakref__", "_get_lock_name", "_names", "_plan")

    _plan: Plan
    _names: tuple[str, ...] | None
    _get_lock_name: naming.GetLockName | None

    def __init__(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        acquire_time: float | None = CONFIGURED,
        expire: float = CONFIGURED,
        *,
        client: Any = None,
        get_redis_connection: ConnectionFactory | None = None,
        prefix: str = CONFIGURED,
        delta: float = CONFIGURED,
        release_method: ReleaseMethod = CONFIGURED,
    ) -> None:
        told = locals()
        given: Any = {name: told[name] for name in OPTION_NAMES if told[name] is not CONFIGURED}
        plan = Plan(DEFAULT, client, get_redis_connection, given)
        describe(plan, lock_name, get_lock_name, self)

    def __repr__(self) -> str:
        return f"<RedisLock {', '.join(self._names or ['named by each call'])!r:.80}>"

    def __enter__(self) -> Lease:
        lease = unheld(self._plan, self._own_names(), self)
        try:
            refused = lease._acquire(lease._options.wait)
            if refused is not None:
                raise refused
            enter(lease)
            return lease
        except BaseException:
            abandon(lease)
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            lease = innermost(self)
            if lease is not None:
                return lease.__exit__(kind, error, trace)
        except BaseException:
            abandon(innermost(self))
            raise
        raise LockError(
            f"{self!r} is left by a thread that did not enter it; where a block moves "
            "between threads, use acquire() and the lease it returns",
            ", ".join(self._names or ()),
        )

    def acquire(
        self, acquire_time: float | None = CONFIGURED, blocking: bool = True
    ) -> Lease | None:
        """Take the lock; None if it was not free within ``acquire_time`` seconds.

        Args:
            acquire_time: the longest wait, instead of the lock's own.
            blocking: False tries once, whatever ``acquire_time`` says.

        Raises:
            LockError: this thread holds the lock already and would wait for itself.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        wait = self._plan.options.wait
        if acquire_time is not CONFIGURED:
            wait = checked_acquire_time(acquire_time)
        lease = unheld(self._plan, self._own_names(), self)
        try:
            refused = lease._acquire(wait if blocking else 0.0)
            return lease if refused is None else None
        except BaseException:
            abandon(lease)
            raise

    def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock (for several names: any of them)."""
        return self.owner() is not None

    def owner(self) -> str | None:
        """Ask Redis for the identifier of the holder (of the first name that is held)."""
        prefix = self._plan.options.prefix
        keys = tuple([key_of(prefix, name) for name in self._own_names()])
        found = run(holders(self._plan.port(), keys))
        return next((holder for holder in found if holder is not None), None)

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function while holding the lock, which is named by the call if not before.

        Raises:
            LockTimeoutError: the lock was not free in time; the function was not called.
            LockLostError: the function succeeded, but the lease ended before it did.
        """
        if self._names is not None:
            names = self._names
        elif self._get_lock_name is not None:
            names = naming.called(self._get_lock_name)(args, kwargs)
        else:
            names = naming.first_argument(args, kwargs)
        with Attempt(self._plan, names) as refused:
            if refused is not None:
                raise refused
            return refuse_unrun(function, function(*args, **kwargs))

    def _own_names(self) -> tuple[str, ...]:
        return self._names if self._names is not None else naming.first_argument((), {})


def describe(
    plan: Plan,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None = None,
    lock: RedisLock | None = None,
) -> RedisLock:
    """A lock by its plan and its name (the given one, filled in)."""
    naming.refuse_two_ways(lock_name, get_lock_name)
    lock = RedisLock.__new__(RedisLock) if lock is None else lock
    lock._plan = plan
    lock._names = None if lock_name is None else checked_names(lock_name)
    lock._get_lock_name = get_lock_name
    return lock
