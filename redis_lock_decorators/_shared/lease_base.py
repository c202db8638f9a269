"""The base of both ``Lease`` classes."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import replace
from typing import Any
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.identifiers import is_resting
from redis_lock_decorators._flow.losses import refuse_over, why_expired
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.clock import monotonic, suspended
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._rules.owner_info import held_for, is_of, parsed
from redis_lock_decorators._shared.current_leases import forget, is_inside
from redis_lock_decorators._shared.exits import BlockRef
from redis_lock_decorators._shared.on_lost import OnLostCall
from redis_lock_decorators.errors import (
    KEPT_BY,
    LockLostError,
    LockTimeoutError,
    in_seconds,
    shortened,
)


class LeaseBase:
    """The parts that the leases of threads and of tasks have in common."""

    __slots__ = (
        "__weakref__",
        "_block",
        "_claim",
        "_leaving",
        "_observed_in",
        "_on_lost_call",
        "_options",
        "_ownership",
        "_tracked",
    )

    _port: AsyncioPort | BlockingPort
    #: The context in which hooks are called; not set without hooks.
    _observed_in: Context

    def __init__(self, claim: Claim, options: Options) -> None:
        self._claim = claim
        claim.lease_ref = ref(self)
        self._options = options
        self._tracked: TrackedLease | None = None
        # What shows the renewer that the lease can be released; None while a block has it.
        self._ownership: object = None  #: any thread
        # The ``with`` block that owns it: the renewal ends once the block is deleted.
        self._block: object = None  #: any thread
        self._leaving: ref[BlockRef[Any]] | None = None  # what a call of the block's exit refers to
        self._on_lost_call: OnLostCall | None = None
        if options.on_lost is not None:
            self._on_lost_call = OnLostCall(options.on_lost, claim.lock_name, self._follow)

    def __repr__(self) -> str:
        state = "ended" if self._claim.state is ENDED else "lost" if self.lost else "held"
        return f"<Lease of {self.lock_name!r:.80}: {state}, {in_seconds(self.remaining())} left>"

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
        """The name that is locked; several names are joined by ", "."""
        return self._claim.lock_name

    @property
    def lock_names(self) -> tuple[str, ...]:
        """The names that are locked, in the order in which every process acquires them."""
        return self._claim.lock_names

    @property
    def key(self) -> str:
        """The Redis key; several are joined by ", "."""
        return ", ".join([key.decode(errors="surrogateescape") for key in self._claim.keys])

    @property
    def identifier(self) -> str:
        """The random value in the key that identifies this acquisition.

        Any client that knows it can release the lock.
        """
        return self._claim.identifier

    @property
    def fence(self) -> int | None:
        """The fencing token of this acquisition, greater than any before; None without ``fencing``.

        max(last token + 1, the server's clock in microseconds).
        """
        return self._claim.fence

    @property
    def expire(self) -> float:
        """The time to live of the lease in Redis without renewal, in seconds."""
        return self._claim.expire

    @property
    def deadline(self) -> float:
        """When the lease ends for its holder, in seconds of ``time.monotonic()``.

        Send time of the last successful request + ``expire`` - (1 % of ``expire`` + 2 ms). It moves
        back by the time that the machine is suspended, when that clock stops.
        """
        deadline = self._claim.deadline
        return deadline - suspended() if self._port.now is monotonic else deadline

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was released.

        Always True in a forked child, which does not hold what its parent holds.
        """
        return self._claim.is_lost(self._port.now()) or not self._claim.is_of_this_process()

    def remaining(self) -> float:
        """Return the seconds until the deadline; 0 once released or lost."""
        now = self._port.now()
        if not self._claim.is_live(now) or not self._claim.is_of_this_process():
            return 0.0
        return self._claim.deadline - now

    def check(self) -> None:
        """Raise an error unless the lease is held. Sends no request.

        Raises:
            LockLostError: it is lost, or this process is a forked child of the one that holds it.
            LockNotOwnedError: it was released, or its release was attempted and failed.
        """
        refuse_over(self._claim)
        if self.lost:
            raise loss(self)

    def _refused(self, refusal: Refusal, waited: float) -> LockTimeoutError:
        """Return the error for a lock that was not free within ``waited`` seconds."""
        holder, free_in, why = refusal
        if holder is not None and is_resting(holder):
            why = f"{KEPT_BY} {shortened(holder)}"
        claim, info = self._claim, self._claim.owner_info
        about: dict[str, Any] = {"waited": waited, "free_in": free_in, "why": why}
        if info is not None and info.other is not None and not why:
            if holder is None or not is_of(info.other, holder):
                holder = about["free_in"] = None  # another client holds it since
            about["owner"] = owner = parsed(info.other)
            about["held_for"] = held_for(owner, info.time(self._port.now()))
        return LockTimeoutError(claim.lock_name, holder=holder, **about)

    async def _is_owned(self) -> bool:
        if not self._claim.is_of_this_process():
            return False
        found = await holders(self._port, self._claim.keys)
        return all(holder == self._claim.identifier for holder in found)

    @classmethod
    def _substitution(cls, on_lost_call: OnLostCall) -> Callable[[TrackedLease], LeaseBase | None]:
        """Return a function that returns an object for a lease without weak references.

        The function must not refer to anything that may refer to the lease, such as its context:
        the renewer has it, and would keep the lease alive.
        """
        detached = on_lost_call.detached()

        def substitute(tracked: TrackedLease) -> LeaseBase | None:
            call = detached()
            if call is None:
                return None
            make: Any = cls
            lease: LeaseBase = make(tracked.claim, tracked.port, tracked.options)
            lease._tracked, lease._on_lost_call = tracked, call
            return lease

        return substitute

    def _untrack(self) -> None:
        """End the renewal: it must not outlive the lease."""
        if self._tracked is not None:
            self._port.renewer.remove(self._tracked)

    def _apply_min_hold(self) -> None:
        """Have the release keep the lock blocked until ``min_hold`` is over."""
        if self._options.min_hold is not None:
            self._claim.held_until = self._claim.entered + self._options.min_hold

    def _stop_renewing(self) -> None:
        """End the renewal; the lease then expires and is reported as lost."""
        if self._tracked is not None:
            self._tracked.options = replace(self._tracked.options, auto_renew=False)

    def _observe_failure(self, error: BaseException) -> None:
        """Report that a release has failed, unless the end of the lease was reported before."""
        if self._claim.observer is not None:
            self._claim.observer.ended(self._claim, self._port.now(), type(error).__name__)

    def _is_reported(self) -> bool:
        """Whether no loss will be reported any more."""
        return (
            self._tracked is None or self._tracked.is_over() or not self._claim.is_of_this_process()
        )

    def _on_block_gone(self, _: object) -> None:
        """Leave the context, as its block was collected; the block's exit may still be called.

        If the block was deleted without its exit, the lease is no longer renewed: it has no owner.
        """
        self._block = None
        forget(self)
        self._claim.owner = None
        self._claim.lease_ref = _no_lease

    def _notify_lost(self) -> None:
        """Call ``on_lost`` if the lease is lost, once."""
        call, why = self._on_lost_call, self._claim.lost_reason
        if call is not None and why is not None:
            call.make(self, why)

    @staticmethod
    def _follow(context: Context, work: Coroutine[Any, Any, None]) -> Future[Any] | None:
        """Run, in a context, what awaits the result of ``on_lost``; return its task, if any."""
        raise NotImplementedError


def loss(lease: LeaseBase) -> LockLostError:
    """Return the error for a lost lease."""
    claim = lease._claim
    tracked = lease._tracked
    why = claim.lost_reason or (why_expired(claim) if tracked is None else tracked.why_over())
    if not claim.is_of_this_process():
        why = f"it belongs to the parent process {claim.process}"
    return LockLostError(claim.lock_name, holder=claim.lost_holder, why=why)


def _no_lease() -> None:
    """The lease of a claim whose block was deleted."""


def claim_for(lock_names: tuple[str, ...], options: Options, owner: object) -> Claim:
    """Return the claim of a thread or task, before its acquisition."""
    prefix, expire, expire_ms = options.prefix, options.lease_seconds, options.expire_ms
    if options.wait_strategy == "cohort":  # a member mostly gets the identifier of another
        claim = Claim(lock_names, prefix, expire, expire_ms, identifies_late=True)
    else:  # without keywords, which each acquisition would pack into a dict
        claim = Claim(lock_names, prefix, expire, expire_ms)
    claim.owner, claim.grant_ms, claim.renews = owner, options.grant_ms, options.auto_renew
    claim.fencing, claim.replicas = options.fencing, options.replicas
    claim.is_inside = is_inside
    return claim
