"""The hooks of a lease: what its observer refers to, and in which context hooks are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any
from weakref import ref

from redis_lock_decorators._flow.claim_observer import ClaimObserver
from redis_lock_decorators._io.background.hook_calls import report
from redis_lock_decorators._io.clock import unix_time
from redis_lock_decorators._rules.options import Hook
from redis_lock_decorators._shared.on_lost import weakly

if TYPE_CHECKING:
    from redis_lock_decorators._shared.lease_base import LeaseBase
    from redis_lock_decorators.events import LockEvent


def observe(lease: LeaseBase, label: str) -> None:
    """Report the events of a lease to the hooks of its options.

    The claim refers to neither hooks nor context, as the renewer keeps it: they may refer to the
    lease, which must expire once nothing else does. The lease keeps both.
    """
    lease._observed_in = copy_context()
    known_context, known_options = ref(lease._observed_in), ref(lease._options)
    # After the lease was dropped, these are the hooks that the project's settings have.
    given: Any = lease._options.hooks
    weak_hooks = [weakly(hook) for hook in given]

    def deliver(take: Callable[[], Sequence[LockEvent]]) -> None:
        options = known_options()
        hooks = options.hooks if options is not None else _existing(weak_hooks)
        report(hooks, known_context() or Context(), take)

    lease._claim.observer = ClaimObserver(lease._claim, label, unix_time, deliver)


def _existing(weak_hooks: list[Callable[[], Any]]) -> list[Hook]:
    """Return the hooks that were not deleted."""
    return [hook for find in weak_hooks if (hook := find()) is not None]
