"""redis-py's ``Lock`` for threads: ``client.lock("x", timeout=3, lock_class=Lock)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from redis_lock_decorators.drop_in import Anchor, Cell, DropIn
from redis_lock_decorators.flow import drop_in as flow
from redis_lock_decorators.flow.acquire import undo
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.logs import log
from redis_lock_decorators.settings import DEFAULT
from redis_lock_decorators.world.background import here
from redis_lock_decorators.world.blocking import BlockingPort, run
from redis_lock_decorators.world.client_types import BlockingClient
from redis_lock_decorators.world.crew import releases

__all__ = ["Lock"]


class Lock(DropIn[BlockingClient]):
    __doc__ = DropIn.__doc__

    _awaited = False

    def __enter__(self) -> Lock:
        cell = self.local._cell()
        before = cell.claim
        try:
            if self.acquire():
                return self
        except BaseException:
            self._abandon(cell, before)
            raise
        raise self._busy()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.release()
        except Exception as failure:
            if not self._quiet(failure, kind is not None):
                raise
        except BaseException:
            self._abandon(self.local._cell())
            raise

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        *,
        sleep: float | None = None,
    ) -> bool:
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
        cell = self.local._cell()
        before = cell.claim
        try:
            taken = run(flow.acquire(self._port(), wish))
            if taken:
                cell.put(wish.claim)
                self._keep(cell, wish.claim)
            return taken
        except BaseException:
            if not wish.claim.ended:
                run(undo(self._port(), wish.claim))
            if cell.claim is wish.claim:
                cell.put(before)
            raise

    def release(self) -> None:
        """Let the lock go; it can be called again after a broken connection.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        cell = self.local._cell()
        claim = self._held(cell)
        cell.let_go()
        if here() is not None:  # a finalizer: all locks that are renewed would wait for this one
            return releases.call(lambda: self._let_go_beside(cell, claim))
        return self._let_go(cell, claim)

    def _let_go(self, cell: Cell, claim: Claim) -> None:
        try:
            run(flow.release(self._port(), claim))
        finally:
            if claim.ended:
                cell.forget(claim)

    def _let_go_beside(self, cell: Cell, claim: Claim) -> None:
        """Let go where nobody can be told what comes of it."""
        try:
            self._let_go(cell, claim)
        except Exception as error:
            log.warning("%s", error)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add seconds to what the lock has left, or let it have so many from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        change = self._extension(additional_time, replace_ttl)
        cell = self.local._cell()
        claim = self._held(cell)
        self._refuse_endless()
        return self._adjust(cell, claim, change)

    def reacquire(self) -> Literal[True]:
        """Let the lock have its timeout again, from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        cell = self.local._cell()
        claim = self._held(cell)
        change = self._extension(self._refuse_endless(), replace_ttl=True)
        return self._adjust(cell, claim, change)

    def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock."""
        return run(flow.is_locked(self._port(), self._key))

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock."""
        return run(flow.is_owned(self._port(), self.local._cell().claim))

    def _adjust(self, cell: Cell, claim: Claim, change: Callable[[float], float]) -> Literal[True]:
        try:
            run(flow.adjust(self._port(), claim, change))
        finally:
            cell.keep()
        return True

    def _keep(self, cell: Cell, claim: Claim) -> None:
        """Renew the claim from now on, if that is wanted."""
        if self.auto_renew:
            cell.anchor = Anchor(claim, self._port())

    def _cells(self) -> Callable[[], Cell]:
        own = _ThreadCell()
        return lambda: own.cell

    def _port(self) -> BlockingPort:
        return DEFAULT.port(self.redis, None)

    def _held(self, cell: Cell) -> Claim:
        """The claim to release or extend."""
        claim = cell.claim
        if claim is None:
            run(flow.refuse_unheld(self._port(), self._lock_name, self._key))
        return claim

    def _abandon(self, cell: Cell, before: Claim | None = None) -> None:
        """Let go what was acquired since ``before``, after an exception from outside: a Ctrl-C."""
        claim = cell.claim
        if claim is not None and claim is not before:
            cell.put(before)
            run(undo(self._port(), claim))


class _ThreadCell(threading.local):
    """Each thread's cell."""

    def __init__(self) -> None:
        self.cell = Cell()
