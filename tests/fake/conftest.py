"""A double for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redis_lock_decorators.testing.fake import FakeServer


@pytest.fixture
def double() -> Iterator[FakeServer]:
    with FakeServer() as double:
        yield double
