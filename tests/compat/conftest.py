"""The client and the classes of the tests of drop-in replacements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.drop_ins import KINDS, Kind


@pytest.fixture
def conn(server: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as conn:
        yield conn
        conn.flushdb()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]
