"""redis-py's asyncio ``Lock`` for tasks: ``client.lock("x", timeout=3, lock_class=Lock)``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

from redis_lock_decorators.asyncio.cells import TaskCells
from redis_lock_decorators.drop_in import Anchor, Cell, DropIn
from redis_lock_decorators.flow import drop_in as flow
from redis_lock_decorators.flow.acquire import undo
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.drop_in import Wish
from redis_lock_decorators.settings import DEFAULT
from redis_lock_decorators.world.client_types import AsyncClient
from redis_lock_decorators.world.tasks import AsyncioPort

__all__ = ["Lock"]


class Lock(DropIn[AsyncClient]):
    __doc__ = DropIn.__doc__

    _awaited = True

    # What is called belongs to the task that calls it, whichever runs the coroutine: before
    # Python 3.12, wait_for(lock.acquire(), 1) runs it in a task of its own.

    def __aenter__(self) -> Coroutine[Any, Any, Lock]:
        return self._enter(self.local._own_cell(), self.acquire())

    def __aexit__(self, kind: object, error: object, trace: object) -> Coroutine[Any, Any, None]:
        find = self.local._cell
        cell = find.left() if isinstance(find, TaskCells) else find()
        releasing = self.release() if cell is find() else self._release(cell)
        return self._leave(cell, releasing, kind is not None)

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        *,
        sleep: float | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Take the lock; False if it was not free in time.

        Args:
            blocking: False tries once; None is the lock's own setting, here and below.
            blocking_timeout: the longest wait in seconds.
            token: the value that proves who holds the lock; a random one if None.
            sleep: seconds between two tries, on average.

        Raises:
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        wish = self._wish(blocking, blocking_timeout, token, sleep)
        return self._acquire(self.local._own_cell(), wish)

    def release(self) -> Coroutine[Any, Any, None]:
        """Let the lock go; it can be called again after a broken connection.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        return self._release(self.local._cell())

    def extend(
        self, additional_time: float, replace_ttl: bool = False
    ) -> Coroutine[Any, Any, Literal[True]]:
        """Add seconds to what the lock has left, or let it have so many from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        change = self._extension(additional_time, replace_ttl)
        return self._adjust(self.local._cell(), change)

    def reacquire(self) -> Coroutine[Any, Any, Literal[True]]:
        """Let the lock have its timeout again, from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        return self._adjust(self.local._cell(), None)

    async def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock."""
        return await flow.is_locked(self._port(), self._key)

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Ask Redis whether this task holds the lock."""
        return self._owned(self.local._cell())

    async def _enter(self, cell: Cell, acquiring: Awaitable[bool]) -> Lock:
        before = cell.claim
        try:
            if await acquiring:
                return self
        except BaseException:
            await self._abandon(cell, before)
            raise
        raise self._busy()

    async def _leave(self, cell: Cell, releasing: Awaitable[None], failed: bool) -> None:
        try:
            await releasing
        except Exception as failure:
            if not self._quiet(failure, failed):
                raise
        except BaseException:
            await self._abandon(cell)
            raise

    async def _acquire(self, cell: Cell, wish: Wish) -> bool:
        before = cell.claim
        try:
            taken = await flow.acquire(self._port(), wish)
            if taken:
                cell.put(wish.claim)
                self._keep(cell, wish.claim)
            return taken
        except BaseException:
            if not wish.claim.ended:
                await undo(self._port(), wish.claim)
            if cell.claim is wish.claim:
                cell.put(before)
            raise

    async def _release(self, cell: Cell) -> None:
        claim = await self._held(cell)
        cell.let_go()
        try:
            await flow.release(self._port(), claim)
        finally:
            if claim.ended:
                cell.forget(claim)

    async def _adjust(self, cell: Cell, change: Callable[[float], float] | None) -> Literal[True]:
        claim = await self._held(cell)
        timeout = self._refuse_endless()
        change = change or self._extension(timeout, replace_ttl=True)
        try:
            await flow.adjust(self._port(), claim, change)
        finally:
            cell.keep()
        return True

    async def _owned(self, cell: Cell) -> bool:
        return await flow.is_owned(self._port(), cell.claim)

    def _keep(self, cell: Cell, claim: Claim) -> None:
        """Renew the claim from now on, if that is wanted."""
        if self.auto_renew:
            cell.anchor = Anchor(claim, self._port())

    def _cells(self) -> Callable[[], Cell]:
        return TaskCells()

    def _port(self) -> AsyncioPort:
        return DEFAULT.async_port(self.redis, None)

    async def _held(self, cell: Cell) -> Claim:
        """The claim to release or extend."""
        claim = cell.claim
        if claim is None:
            await flow.refuse_unheld(self._port(), self._lock_name, self._key)
        return claim

    async def _abandon(self, cell: Cell, before: Claim | None = None) -> None:
        """Let go what was acquired since ``before``, after an exception from outside."""
        claim = cell.claim
        if claim is not None and claim is not before:
            cell.put(before)
            await undo(self._port(), claim)
