"""A lease: one held acquisition, as its holder sees it."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import Literal

from redis_lock_decorators.errors import LockLostError, LockTimeoutError
from redis_lock_decorators.flow.acquire import acquire, undo
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.extend import extend, holders
from redis_lock_decorators.flow.release import leave, refuse_over, release
from redis_lock_decorators.plan import Plan
from redis_lock_decorators.rules.durations import checked_expire
from redis_lock_decorators.rules.options import Options
from redis_lock_decorators.world.blocking import BlockingPort, run

_entered: ContextVar[tuple[Lease, ...]] = ContextVar("redis_lock_decorators.entered", default=())


class Lease:
    """One held acquisition: the right to be inside until its deadline.

    Safe to use from any thread of the process that acquired it.
    """

    __slots__ = ("__weakref__", "_claim", "_lock", "_mutex", "_options", "_port")

    def __init__(self, claim: Claim, port: BlockingPort, options: Options, lock: object) -> None:
        self._claim = claim
        self._lock = lock
        self._port = port
        self._options = options
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        state = "ended" if self._claim.ended else "lost" if self.lost else "held"
        return f"<Lease of {self.lock_name!r:.80}: {state}, {self.remaining():.3g} s left>"

    @property
    def lock_name(self) -> str:
        """What is locked; several names are joined by ", "."""
        return self._claim.lock_name

    @property
    def lock_names(self) -> tuple[str, ...]:
        """What is locked, one by one, in the order in which everybody takes it."""
        return self._claim.lock_names

    @property
    def key(self) -> str:
        """The Redis key; several are joined by ", "."""
        return ", ".join([key.decode(errors="surrogateescape") for key in self._claim.keys])

    @property
    def identifier(self) -> str:
        """The random value in the key that proves who holds it. Whoever knows it can release."""
        return self._claim.identifier

    @property
    def expire(self) -> float:
        """Seconds the lease lives in Redis without being extended."""
        return self._claim.expire

    @property
    def deadline(self) -> float:
        """When the lease ends for its holder, in seconds of ``time.monotonic()``.

        The send time of the last successful request + expire - a margin of 1 % and 2 ms.
        """
        return self._claim.deadline

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was released."""
        return self._claim.is_lost(time.monotonic()) or not self._claim.is_of_this_process()

    def remaining(self) -> float:
        """Seconds until the deadline; 0 once released or lost."""
        now = time.monotonic()
        if not self._claim.is_live(now) or not self._claim.is_of_this_process():
            return 0.0
        return self._claim.deadline - now

    def check(self) -> None:
        """Do nothing while the lease is good.

        Raises:
            LockLostError: it is lost.
        """
        if self.lost:
            why = self._claim.lost_to or "its time ran out"
            if not self._claim.is_of_this_process():
                why = f"it belongs to the parent process {self._claim.process}"
            raise LockLostError(self.lock_name, why=why)

    def extend(self, seconds: float | None = None) -> Literal[True]:
        """Let the lease last at least ``seconds`` (its ``expire`` if None) from now.

        Raises:
            LockNotOwnedError: it was released before.
            LockLostError: Redis says that the lock is not ours any more.
            redis.exceptions.ConnectionError: the outcome is unknown; the old deadline stands.
        """
        seconds = self._claim.expire if seconds is None else checked_expire(seconds)
        with self._mutex:
            run(extend(self._port, self._claim, seconds))
        return True

    def owned(self) -> bool:
        """Ask Redis whether the lock is still ours."""
        if not self._claim.is_of_this_process():
            return False
        found = run(holders(self._port, self._claim.keys))
        return all(holder == self._claim.identifier for holder in found)

    def release(self) -> None:
        """Let the lock go; the second time there is nothing to do.

        Raises:
            LockLostError: the lease had ended before.
            redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
        """
        with self._mutex:
            run(release(self._port, self._claim, self._options.release_method))

    def __enter__(self) -> Lease:
        refuse_over(self._claim)
        self.check()
        enter(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        method, failed = self._options.release_method, kind is not None
        try:
            forget(self)
            with self._mutex:
                run(leave(self._port, self._claim, method, failed))
        except BaseException:
            abandon(self)
            raise

    def _acquire(self, wait: float) -> LockTimeoutError | None:
        """Become held; or the error to raise, if the lock was not free in ``wait`` seconds."""
        claim, port = self._claim, self._port
        started = port.now()
        refusal = run(acquire(port, claim, wait, self._options.delta))
        if refusal is None:
            return None
        return LockTimeoutError(
            claim.lock_name,
            waited=port.now() - started,
            holder=refusal.holder,
            free_in=refusal.free_in,
        )


class Attempt:
    """A block that holds a lock if it can: its value is None, or why it does not."""

    __slots__ = ("_lease",)

    def __init__(self, plan: Plan, lock_names: tuple[str, ...]) -> None:
        self._lease = unheld(plan, lock_names)

    @property
    def lease(self) -> Lease:
        """The lease, held if the block's value is None."""
        return self._lease

    def __enter__(self) -> LockTimeoutError | None:
        lease = self._lease
        try:
            refused = lease._acquire(lease._options.wait)
            if refused is None:
                enter(lease)
            return refused
        except BaseException:
            abandon(lease)
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._lease._claim.ended:
            self._lease.__exit__(kind, error, trace)


def abandon(lease: Lease | None) -> None:
    """Let go, if it is not over, after an exception from outside at any line: a Ctrl-C."""
    if lease is not None:
        forget(lease)
        if not lease._claim.ended:
            run(undo(lease._port, lease._claim))


def unheld(plan: Plan, lock_names: tuple[str, ...], lock: object = None) -> Lease:
    """A lease of this thread that is yet to be acquired, through ``lock`` if any."""
    options = plan.options
    names_and_time = (lock_names, options.prefix, options.expire, options.ttl)
    claim = Claim(*names_and_time, owner=threading.current_thread())
    return Lease(claim, plan.port(), options, lock)


def current_lease() -> Lease | None:
    """The lease of the innermost lock held around this code, None if there is none."""
    for lease in reversed(_entered.get()):
        if not lease._claim.ended:
            return lease
    return None


def enter(lease: Lease) -> None:
    """Make a lease the innermost one of this context."""
    _entered.set((*_entered.get(), lease))


def forget(lease: Lease) -> None:
    """Take a lease out of this context, wherever it stands: generators leave in any order."""
    entered = _entered.get()
    if entered and entered[-1] is lease:
        _entered.set(entered[:-1])
    else:
        _entered.set(tuple([other for other in entered if other is not lease]))


def innermost(lock: object) -> Lease | None:
    """The lease that this thread entered last through ``lock``, if it has not left it."""
    me = threading.current_thread()
    for lease in reversed(_entered.get()):
        if lease._lock is lock and lease._claim.owner is me:
            return lease
    return None
