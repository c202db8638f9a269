"""A thread's lease before its acquisition, and the block of one attempt to acquire it."""

from __future__ import annotations

from redis_lock_decorators._io.owner_info import owner_info
from redis_lock_decorators._shared.current_leases import enter
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.observing import observe
from redis_lock_decorators.errors import LockTimeoutError
from redis_lock_decorators.lease import Lease, abandon, running


class Attempt:
    """A ``with`` block that gives None if it holds the lock, else the error instead of raising."""

    __slots__ = ("_held", "_lease")

    def __init__(self, config: LockConfig, lock_names: tuple[str, ...]) -> None:
        self._lease = unheld(config, lock_names)
        self._held = False

    @property
    def lease(self) -> Lease:
        """The lease; it is held if the block's value is None."""
        return self._lease

    def __enter__(self) -> LockTimeoutError | None:
        lease = self._lease
        try:
            refused = lease._acquire(lease._options.max_wait)
            if refused is None:
                self._held = True
                enter(lease)
            return refused
        except BaseException:
            abandon(lease)
            raise

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._held:
            self._lease._leave(None, kind, error, trace)


def unheld(config: LockConfig, lock_names: tuple[str, ...]) -> Lease:
    """Return a lease of this thread, before its acquisition."""
    options = config.options
    claim = claim_for(lock_names, options, running())
    if options.owner_info is not False:
        claim.owner_info = owner_info(options.owner_info, claim.lock_name, config.function, False)
    lease = Lease(claim, config.port(), options)
    if options.hooks:
        observe(lease, config.label)
    return lease
