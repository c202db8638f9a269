"""What a lease tells without asking Redis, and which leases are held around a piece of code."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar

from redis_lock_decorators.errors import LockLostError, LockTimeoutError, shown
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.keeper import Watch
from redis_lock_decorators.flow.release import RAN_OUT, refuse_over
from redis_lock_decorators.flow.requests import Refusal
from redis_lock_decorators.rules.options import Options

log = logging.getLogger("redis_lock_decorators")

_entered: ContextVar[tuple[LeaseFacts, ...]] = ContextVar(
    "redis_lock_decorators.entered", default=()
)


class LeaseFacts:
    """What threads' and tasks' leases have in common."""

    __slots__ = ("__weakref__", "_claim", "_lock", "_options", "_told", "_watch")

    def __init__(self, claim: Claim, options: Options, lock: object) -> None:
        self._claim = claim
        self._options = options
        self._lock = lock
        self._watch: Watch | None = None
        self._told = False

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
    def fence(self) -> int | None:
        """The number of this acquisition, with ``fencing``: greater than that of any before.

        The greater of the last number + 1 and the server's clock in microseconds.
        """
        return self._claim.fence

    @property
    def expire(self) -> float:
        """Seconds the lease lives in Redis without being renewed."""
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
            LockNotOwnedError: it was released, or a release of it failed half-way.
        """
        refuse_over(self._claim)
        if self.lost:
            why = self._claim.lost_to or RAN_OUT
            if not self._claim.is_of_this_process():
                why = f"it belongs to the parent process {self._claim.process}"
            raise LockLostError(self.lock_name, why=why)

    def _refused(self, refusal: Refusal, waited: float) -> LockTimeoutError:
        """The error to raise for a refusal after ``waited`` seconds."""
        holder, free_in, why = refusal
        return LockTimeoutError(
            self._claim.lock_name, waited=waited, holder=holder, free_in=free_in, why=why
        )

    def _stay(self) -> None:
        """Let the lock stand for its ``min_hold`` though it is being released."""
        if self._options.min_hold is not None:
            self._claim.rest = self._claim.entered + self._options.min_hold

    def _tell(self) -> object:
        """Call ``on_lost`` if the lease is known to be lost, once."""
        why, on_lost = self._claim.lost_to, self._options.on_lost
        if why is None or on_lost is None or self._told:
            return None
        self._told = True
        try:
            return on_lost(self, why)
        except Exception:
            log.exception("on_lost of lock %s failed", shown(self.lock_name))
            return None


def claim_for(lock_names: tuple[str, ...], options: Options, owner: object) -> Claim:
    """A claim of a thread or task, yet to be acquired."""
    prefix, expire, ttl = options.prefix, options.lease, options.ttl
    claim = Claim(lock_names, prefix, expire, ttl, owner=owner)
    claim.grant, claim.renews = options.grant, options.auto_renew
    claim.fencing, claim.replicas = options.fencing, options.replicas
    return claim


def current() -> LeaseFacts | None:
    """The lease of the innermost lock held around this code, None if there is none."""
    for lease in reversed(_entered.get()):
        if not lease._claim.ended:
            return lease
    return None


def enter(lease: LeaseFacts) -> None:
    """Make a lease the innermost one of this context."""
    _entered.set((*_entered.get(), lease))


def forget(lease: LeaseFacts) -> None:
    """Take a lease out of this context, wherever it stands: generators leave in any order."""
    entered = _entered.get()
    if entered and entered[-1] is lease:
        _entered.set(entered[:-1])
    else:
        _entered.set(tuple([other for other in entered if other is not lease]))


def innermost(lock: object, owner: object) -> LeaseFacts | None:
    """The lease that ``owner`` entered last through ``lock``, if it has not left it."""
    for lease in reversed(_entered.get()):
        if lease._lock is lock and lease._claim.owner is owner:
            return lease
    return None
