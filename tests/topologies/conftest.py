"""Fixtures of the scenes: a short form for every run, and a long one marked ``slow``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.fronts import LEGACY

#: Files of this folder that cannot be imported with redis-py 3.5, which has no asyncio.
collect_ignore_glob = ["test_*.py"] if LEGACY or not hasattr(signal, "SIGSTOP") else []


@pytest.fixture(params=[1, pytest.param(8, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def rounds(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The rounds of a scene's faults: one, or eight in the long form."""
    return range(request.param)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose masters have a replica each."""
    from redis_lock_decorators.testing import LocalCluster

    with LocalCluster(replicas=1) as cluster:
        yield cluster
