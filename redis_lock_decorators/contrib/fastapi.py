"""FastAPI: the locks of an application, also as dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi import Depends

from redis_lock_decorators.asyncio import Lease
from redis_lock_decorators.contrib.starlette import StarletteLocks
from redis_lock_decorators.errors import LockNameError

__all__ = ["FastAPILocks"]


class FastAPILocks(StarletteLocks):
    """The locks of a FastAPI application.

    ``@locks.redis_lock("order:{order_id}")`` stands below ``@app.post(...)``. The arguments are
    those of ``Locks``.
    """

    def held(
        self, lock_name: str | Callable[..., str | Sequence[str]], **options: Any
    ) -> Callable[..., AsyncIterator[Lease]]:
        """Return a dependency for ``Depends``: the lease of a lock that is held for the request.

        Until when it is held, FastAPI determines: by default until the response is sent, with
        ``Depends(…, scope="function")`` until the route has returned.

        Args:
            lock_name: a text, or a function that returns the name. FastAPI calls the function with
                the parameters that it declares, converted to their types.
            options: as for ``RedisLock``, durations in seconds.

        Raises:
            LockNameError: it is neither a text nor a function, or the text has fields, which only
                ``@redis_lock`` fills in.
            ConfigurationError: an option is unknown or invalid.
        """
        self.async_lock(lock_name if isinstance(lock_name, str) else "any", **options)  # checks
        if callable(lock_name):
            return self._held(Depends(lock_name), options)
        if not isinstance(lock_name, str):
            raise LockNameError(
                f"held({lock_name!r:.80}): give a text, or a function that returns the name"
            )
        if "{" in lock_name:
            raise LockNameError(
                f"held({lock_name!r:.80}): give a function that returns the name, as FastAPI "
                "would not convert the fields of a text: def order_name(order_id: int): …"
            )
        return self._held(lock_name, options)

    def _held(self, lock_name: Any, options: dict[str, Any]) -> Callable[..., AsyncIterator[Lease]]:
        if isinstance(lock_name, str):
            given = lock_name

            def lock_name_of() -> str:
                return given

            lock_name = Depends(lock_name_of)

        # The default is what FastAPI replaces by the result of the function.
        async def dependency(name: Any = lock_name) -> AsyncIterator[Lease]:
            async with self.async_lock(name, **options) as lease:
                yield lease

        return dependency
