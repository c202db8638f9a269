"""What the README's code runs on: a local server that REDIS_URL names."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _readme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    monkeypatch.setenv("REDIS_URL", request.getfixturevalue("readme_server").url)
    monkeypatch.delenv("REDIS_LOCK_CONNECTION", raising=False)


@pytest.fixture(scope="session")
def readme_server():
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server
