"""What every example starts with: a server to try it on."""

import contextlib
import os
from collections.abc import Iterator

from redis_lock_decorators.testing import LocalServer


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """The URL of the server in REDIS_URL, or of a local one that ends with the block."""
    named = os.environ.get("REDIS_URL")
    if named:
        yield named
        return
    with LocalServer() as server:
        yield server.url
