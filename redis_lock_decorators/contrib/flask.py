"""Flask: the locks of an application, and the response of a request whose lock is busy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial

import redis
from flask import Flask, Response

from redis_lock_decorators.contrib._arguments import checked_status, checked_url
from redis_lock_decorators.contrib._busy import LOCKED, TEXT, retry_after
from redis_lock_decorators.errors import ConfigurationError, LockTimeoutError
from redis_lock_decorators.locks import Locks

__all__ = ["FlaskLocks"]

KEYS = ("REDIS_LOCK_URL", "REDIS_LOCK_OPTIONS", "REDIS_LOCK_STATUS")


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
            ConfigurationError: an option is unknown or invalid, or a key is misspelt.
        """
        _refuse_misspelt(app.config)
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


def _refuse_misspelt(config: Iterable[str]) -> None:
    """Refuse keys that differ a little from one that is read; others may be of the program."""
    for key in config:
        meant = get_close_matches(key, KEYS, n=1, cutoff=0.9)
        if meant and key not in KEYS:
            raise ConfigurationError(f"{key} has no effect in app.config: {meant[0]} is meant")


def _busy(status: int, error: LockTimeoutError) -> Response:
    headers = {"Retry-After": retry_after(error)}
    return Response(TEXT, status, headers, mimetype="text/plain")
