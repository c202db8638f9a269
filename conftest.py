"""What the README's code runs on: a local server, and a function that connects to it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _readme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    from redis.asyncio import Redis as AsyncRedis  # not in redis-py 3.5, which has no such item

    server = request.getfixturevalue("readme_server")
    monkeypatch.setenv("REDIS_URL", server.url)
    names = request.getfixturevalue("doctest_namespace")
    names["connect"] = server.client
    names["async_connect"] = lambda: AsyncRedis(port=server.port)


@pytest.fixture(scope="session")
def readme_server():
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server
