"""The leases of the blocks around a piece of code, in its context."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol, TypeVar
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._shared.context_variables import assign


class Entered(Protocol):
    """A lease whose block was entered."""

    _claim: Claim


#: The innermost lease around some code, and those around it: entering one of many costs the same.
Chain = tuple["ref[Entered]", "Chain | None"]
#: Weak references, as contexts are copied and outlive blocks; a block itself refers to its lease.
_entered: ContextVar[Chain | None] = ContextVar("redis_lock_decorators.entered", default=None)

L = TypeVar("L", bound=Entered)


def is_inside(claim: Claim) -> bool:
    """Whether this code runs in the block of a claim, on any thread."""
    return any(lease._claim is claim for lease in held_around())


def current(kind: type[L], owner: object) -> L | None:
    """Return the innermost lease of a class that is held around this code.

    Tasks may share a context: the leases of ``owner`` then come first.
    """
    held = [lease for lease in held_around() if isinstance(lease, kind)]
    own = [lease for lease in held if lease._claim.is_of(owner)]
    found = own or held
    return found[-1] if found else None


def enter(lease: Entered) -> None:
    """Make a lease the innermost one of this context."""
    outer = _entered.get()
    # Leases that were released in another context would otherwise accumulate here.
    while outer is not None and _is_over(outer[0]()):
        outer = outer[1]
    assign(_entered, (ref(lease), outer))
    lease._claim.in_transition = False


def forget(lease: Entered) -> None:
    """Remove a lease from this context; generators end in any order, so not only the innermost."""
    entered, own = _entered.get(), ref(lease)
    inner = []
    while entered is not None and entered[0] != own:
        inner.append(entered[0])
        entered = entered[1]
    if entered is not None:
        outer = entered[1]
        for other in reversed(inner):
            outer = (other, outer)
        assign(_entered, outer)


def held_around() -> list[Entered]:
    """Return the leases of this context that have not ended, the innermost one last."""
    found, entered = [], _entered.get()
    while entered is not None:
        lease = entered[0]()
        if lease is not None and not _is_over(lease):
            found.append(lease)
        entered = entered[1]
    found.reverse()
    return found


def _is_over(lease: Entered | None) -> bool:
    return lease is None or lease._claim.state is ENDED
