"""Starlette: the locks of an application, and the response of a request whose lock is busy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from redis_lock_decorators.contrib._arguments import checked_status, checked_url
from redis_lock_decorators.contrib._busy import LOCKED, TEXT, retry_after
from redis_lock_decorators.errors import LockTimeoutError
from redis_lock_decorators.locks import Locks

__all__ = ["StarletteLocks"]


class StarletteLocks(Locks):
    """The locks of a Starlette application.

    ``@locks.redis_lock("order:{request.path_params[order_id]}")`` stands on an endpoint. The
    arguments are those of ``Locks``.
    """

    def init_app(self, app: Starlette, *, status: int = LOCKED) -> None:
        """Respond with ``status`` and Retry-After to requests whose lock is busy.

        Call it before the application starts. For another response add a handler of your own.

        Raises:
            ConfigurationError: ``status`` is not that of an error.
        """
        status = checked_status("status", status)

        async def busy(request: Request, error: Exception) -> Response:
            assert isinstance(error, LockTimeoutError)  # noqa: S101  # for type checkers
            return PlainTextResponse(TEXT, status, {"Retry-After": retry_after(error)})

        app.add_exception_handler(LockTimeoutError, busy)

    def lifespan(self, url: str) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Return a lifespan of an application, which opens and closes the clients of the locks.

        A lifespan of yours may enter it, ``async with locks.lifespan(url)(app):``, or give the
        client that it has: ``locks.configure(client=client)``.

        Args:
            url: the server. Endpoints that are not async get a blocking client of it.

        Raises:
            ConfigurationError: ``url`` is no text.
        """
        checked_url("url", url)
        from redis.asyncio import Redis  # not in redis-py 3.5

        @asynccontextmanager
        async def opened(app: Any) -> AsyncIterator[None]:
            client, blocking = Redis.from_url(url), redis.Redis.from_url(url)
            self.configure(lambda: blocking, lambda: client)
            try:
                yield
            finally:
                await client.aclose()
                blocking.close()

        return opened
