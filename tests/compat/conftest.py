"""The client of the tests that compare with other packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis


@pytest.fixture
def conn(server: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as conn:
        yield conn
        conn.flushdb()
