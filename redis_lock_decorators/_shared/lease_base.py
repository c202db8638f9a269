"""What a lease tells without asking Redis, and which leases are held around a piece of code."""

from __future__ import annotations

from asyncio import CancelledError
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from typing import Any, TypeVar
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.identifiers import is_resting
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import refuse_over, why_expired
from redis_lock_decorators._flow.renewal.renewer import TrackedLease
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.exits import BlockRef
from redis_lock_decorators.errors import KEPT, LockLostError, LockTimeoutError, shortened, shown

#: Weakly: contexts are copied, and outlive blocks. A block itself has its lease.
_entered: ContextVar[tuple[ref[LeaseBase], ...]] = ContextVar(
    "redis_lock_decorators.entered", default=()
)

L = TypeVar("L", bound="LeaseBase")


class LeaseBase:
    """What threads' and tasks' leases have in common."""

    __slots__ = (
        "__weakref__",
        "_block",
        "_claim",
        "_leaving",
        "_on_lost_context",
        "_options",
        "_tracked",
    )

    def __init__(self, claim: Claim, options: Options) -> None:
        self._claim = claim
        self._options = options
        self._tracked: TrackedLease | None = None
        # The ``with`` block that holds it: the lease is given up once that is gone.
        self._block: object = None
        self._leaving: ref[BlockRef[Any]] | None = None  # what a call of that block's exit has
        # In what context ``on_lost`` is to be called; whoever takes it out calls it.
        self._on_lost_context = None if options.on_lost is None else [copy_context()]

    def __repr__(self) -> str:
        state = "ended" if self._claim.state is ENDED else "lost" if self.lost else "held"
        return f"<Lease of {self.lock_name!r:.80}: {state}, {self.remaining():.3g} s left>"

    def __reduce__(self) -> str:
        """Refuse to be copied, by ``pickle`` or in this process: one lease has one holder.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"cannot copy or pickle {self!r}: it belongs to the process that acquired it, which "
            "renews it; hold it here while others do the work, or use acquire_lock, whose "
            "identifier lets any process extend and release"
        )

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
        return self._claim.is_lost(monotonic()) or not self._claim.is_of_this_process()

    def remaining(self) -> float:
        """Seconds until the deadline; 0 once released or lost."""
        now = monotonic()
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
            raise loss(self)

    def _refused(self, refusal: Refusal, waited: float) -> LockTimeoutError:
        """The error to raise for a refusal after ``waited`` seconds."""
        holder, free_in, why = refusal
        if holder is not None and is_resting(holder):
            why = f"{KEPT} {shortened(holder)}"
        return LockTimeoutError(
            self._claim.lock_name, waited=waited, holder=holder, free_in=free_in, why=why
        )

    def _apply_min_hold(self) -> None:
        """Let the lock stand for its ``min_hold`` though it is being released."""
        if self._options.min_hold is not None:
            self._claim.held_until = self._claim.entered + self._options.min_hold

    def _stop_renewing(self) -> None:
        """End with the lease as it stands: be renewed no more, and told lost then."""
        if self._tracked is not None:
            self._tracked.options = replace(self._tracked.options, auto_renew=False)

    def _is_reported(self) -> bool:
        """Whether nothing is to be told of it any more."""
        return (
            self._tracked is None or self._tracked.is_over() or not self._claim.is_of_this_process()
        )

    def _on_block_gone(self, _: object) -> None:
        """End with the lease as it stands, as its block is gone and was not left."""
        self._block = None
        forget(self)
        self._claim.owner = None
        self._stop_renewing()

    def _pop_on_lost_context(self) -> Context | None:
        """In what context to call ``on_lost``, if that is due: only the first who asks is told."""
        if self._on_lost_context is None or self._claim.lost_reason is None:
            return None
        try:
            return self._on_lost_context.pop()
        except IndexError:
            return None

    def _call_on_lost(self) -> object:
        """What ``on_lost`` returns; its failure is logged."""
        on_lost, why = self._options.on_lost, self._claim.lost_reason
        try:
            return on_lost(self, why or "") if on_lost is not None else None
        except (Exception, CancelledError):  # that of a future whose result it wanted
            log.exception("on_lost of lock %s failed", shown(self.lock_name))
            return None


def loss(lease: LeaseBase) -> LockLostError:
    """The error for a lease that is lost."""
    claim = lease._claim
    why = claim.lost_reason or (
        why_expired(claim) if lease._tracked is None else lease._tracked.why_over()
    )
    if not claim.is_of_this_process():
        why = f"it belongs to the parent process {claim.process}"
    return LockLostError(claim.lock_name, holder=claim.lost_holder, why=why)


def claim_for(lock_names: tuple[str, ...], options: Options, owner: object) -> Claim:
    """A claim of a thread or task, yet to be acquired."""
    prefix, expire, ttl = options.prefix, options.lease_seconds, options.expire_ms
    late = options.wait_strategy == "cohort"  # it is mostly passed the identifier of another
    claim = Claim(lock_names, prefix, expire, ttl, owner=owner, identifies_late=late)
    claim.grant_ms, claim.renews = options.grant_ms, options.auto_renew
    claim.fencing, claim.replicas = options.fencing, options.replicas
    claim.is_around = is_around
    return claim


def is_around(claim: Claim) -> bool:
    """Whether a claim's block is around this code, wherever that runs."""
    return any(lease._claim is claim for lease in held_around())


def current(kind: type[L], owner: object) -> L | None:
    """The lease of a kind that is held around this code; the innermost one if there are several.

    One of the other world is not found: its methods are awaited, or are not, so that who asked
    would release or extend nothing. It is no error either: who may be called in both worlds asks
    in both.

    Tasks may share a context: then that of the owner comes first.
    """
    held = [lease for lease in held_around() if isinstance(lease, kind)]
    own = [lease for lease in held if lease._claim.is_of(owner)]
    found = own or held
    return found[-1] if found else None


def enter(lease: LeaseBase) -> None:
    """Make a lease the innermost one of this context."""
    # Those that were left elsewhere would stay here for ever.
    outer = [ref(other) for other in held_around()] if _entered.get() else ()
    _entered.set((*outer, ref(lease)))
    lease._claim.in_transition = False


def forget(lease: LeaseBase) -> None:
    """Take a lease out of this context, wherever it stands: generators leave in any order."""
    entered, own = _entered.get(), ref(lease)
    if entered and entered[-1] == own:
        _entered.set(entered[:-1])
    elif own in entered:
        _entered.set(tuple([other for other in entered if other != own]))


def held_around() -> list[LeaseBase]:
    """The leases of this context that are not over, the innermost one last."""
    found = [lease() for lease in _entered.get()]
    return [lease for lease in found if lease is not None and lease._claim.state is not ENDED]
