"""A task's lease before its acquisition, and the block of one attempt to acquire it."""

from __future__ import annotations

import asyncio

from redis_lock_decorators._io.background.unreleased import release_soon, unreleased
from redis_lock_decorators._io.owner_info import owner_info
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.observing import observe
from redis_lock_decorators.asyncio._cancellation import TaskRef, running
from redis_lock_decorators.asyncio.lease import Lease, abandon
from redis_lock_decorators.errors import LockTimeoutError


class Attempt:
    """An ``async with`` block that gives None if it holds the lock, else the error."""

    __slots__ = ("_held", "_lease")

    def __init__(self, config: LockConfig, lock_names: tuple[str, ...]) -> None:
        self._lease = unheld(config, lock_names)
        self._held = False

    @property
    def lease(self) -> Lease:
        """The lease; it is held if the block's value is None."""
        return self._lease

    async def __aenter__(self) -> LockTimeoutError | None:
        lease = self._lease
        try:
            refused = lease._begin(await lease._acquire(lease._options.max_wait))
            if refused is None:
                self._held = True
                lease._enter()
            return refused
        except BaseException:
            await abandon(lease)
            raise

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._held:
            await self._lease.__aexit__(kind, error, trace)


def unheld(config: LockConfig, lock_names: tuple[str, ...], owner: TaskRef | None = None) -> Lease:
    """Return a lease of a task, by default the running one, before its acquisition."""
    if unreleased:
        release_soon(asyncio.get_running_loop())
    options = config.options
    claim = claim_for(lock_names, options, owner or running())
    if options.owner_info is not False:
        claim.owner_info = owner_info(options.owner_info, claim.lock_name, config.function, True)
    lease = Lease(claim, config.async_port(), options)
    if options.hooks:
        observe(lease, config.label)
    return lease
