"""Flask: the locks of an application, and the response of a request whose lock is busy."""

from __future__ import annotations

from functools import partial

import redis
from flask import Flask, Response

from redis_lock_decorators.contrib._arguments import checked_status, checked_url
from redis_lock_decorators.contrib._busy import LOCKED, TEXT, retry_after
from redis_lock_decorators.errors import ConfigurationError, LockTimeoutError
from redis_lock_decorators.locks import Locks

__all__ = ["FlaskLocks"]


class FlaskLocks(Locks):
    """The locks of a Flask application: an extension.

    ``@locks.redis_lock("order:{order_id}")`` stands below ``@app.post(...)``. The arguments are
    those of ``Locks``.
    """

    def init_app(self, app: Flask) -> None:
        """Configure the locks for an application; the last application determines the server.

        It reads from ``app.config``:

        - ``REDIS_LOCK_URL``: the server; without it, the connection of these locks remains
        - ``REDIS_LOCK_OPTIONS``: defaults of the locks, as for ``configure``
        - ``REDIS_LOCK_STATUS``: the status of a request whose lock is busy, by default 423. The
          response has Retry-After. For another one register an error handler afterwards.

        Raises:
            ConfigurationError: an option is unknown or invalid.
        """
        if url := app.config.get("REDIS_LOCK_URL"):
            from redis import asyncio  # not in redis-py 3.5

            checked_url("REDIS_LOCK_URL", url)
            self.configure(partial(redis.Redis.from_url, url), partial(asyncio.Redis.from_url, url))
        options = app.config.get("REDIS_LOCK_OPTIONS", {})
        if not isinstance(options, dict):
            raise ConfigurationError(
                f"REDIS_LOCK_OPTIONS={options!r:.80}: give a dict of options, such as expire"
            )
        self.configure(**options)
        given = app.config.get("REDIS_LOCK_STATUS", LOCKED)
        status = checked_status("REDIS_LOCK_STATUS", given)
        app.extensions["redis_lock"] = self
        app.register_error_handler(LockTimeoutError, partial(_busy, status))


def _busy(status: int, error: LockTimeoutError) -> Response:
    headers = {"Retry-After": retry_after(error)}
    return Response(TEXT, status, headers, mimetype="text/plain")
