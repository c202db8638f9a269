"""The server on which every example runs."""

import contextlib
import os
from collections.abc import Iterator

from redis_lock_decorators.testing import LocalServer


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """The URL in REDIS_URL, or that of a local server that stops at the end of the block."""
    configured = os.environ.get("REDIS_URL")
    if configured:
        yield configured
        return
    with LocalServer() as server:
        yield server.url
