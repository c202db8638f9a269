"""The server on which every example runs."""

import contextlib
import os
from collections.abc import Iterator

import redis

from redis_lock_decorators.testing import LocalServer


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """The URL in REDIS_URL, or that of a local server that stops at the end of the block."""
    configured = os.environ.get("REDIS_URL")
    if configured:
        _forget_earlier_runs(configured)
        yield configured
        return
    with LocalServer() as server:
        yield server.url


def _forget_earlier_runs(url: str) -> None:
    """Delete the counters of the job queues."""
    items = [f"{kind}:{item}" for kind in ("sold", "ended") for item in ("apple", "pear", "plum")]
    with redis.Redis.from_url(url) as stock:
        stock.delete("died", *items)
