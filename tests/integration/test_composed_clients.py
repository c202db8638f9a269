"""Clients that wrap another one and have few of its methods."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.fronts import do

from redis_lock_decorators import ConfigurationError


class Blocking:
    """A client with one method."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def execute_command(self, *command: Any, **options: Any) -> Any:
        return self._client.execute_command(*command, **options)


class Async:
    """An asyncio client with one method."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        return await self._client.execute_command(*command, **options)


class Opaque:
    """A pipeline that does not expose its connection, like those of redis-py's MultiDBClient."""

    def watch(self, *keys: bytes) -> None:
        raise AssertionError("a key is watched over an unknown connection")


class PipelinedBlocking(Blocking):
    def pipeline(self, **options: Any) -> Any:
        return Opaque()


class PipelinedAsync(Async):
    def pipeline(self, **options: Any) -> Any:
        return Opaque()


@pytest.fixture(params=["bare", "pipelined"])
def composed(request: pytest.FixtureRequest, front: Any, server: Any) -> Any:
    """Returns a new client that wraps another one."""
    kinds: dict[tuple[str, bool], type[Blocking | Async]] = {
        ("bare", False): Blocking,
        ("bare", True): Async,
        ("pipelined", False): PipelinedBlocking,
        ("pipelined", True): PipelinedAsync,
    }
    kind = kinds[request.param, front.name == "asyncio"]
    return lambda: kind(front.client(server))


async def test_lock_is_renewed_and_released(front, direct, name, composed):
    lock = front.package.RedisLock(name, client=composed(), expire=0.6)

    async with front.held(lock) as lease:
        await front.sleep(1)
        lease.check()

    assert not direct.exists(f"sys:lock:{name}")


async def test_waiter_polls(front, direct, name, composed):
    async def hold() -> float:
        lock = front.package.RedisLock(name, client=composed(), acquire_time=20)
        async with front.held(lock):
            began = time.monotonic()
            await front.sleep(0.1)
            return began

    first, second = sorted(await front.elsewhere(hold, hold))

    assert second - first >= 0.1
    assert not direct.exists(f"sys:lock:{name}")


async def test_functions_release_by_the_script(front, direct, name, composed):
    client = composed()
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))

    assert await do(front.package.release_lock(client, name, identifier))
    assert not direct.exists(f"sys:lock:{name}")


async def test_transactions_are_refused_before_the_lock_is_acquired(front, direct, name, composed):
    lock = front.package.RedisLock(name, client=composed(), release_method="transaction")

    with pytest.raises(ConfigurationError, match="WATCH"):
        async with front.held(lock):
            pass

    assert not direct.exists(f"sys:lock:{name}")
