"""Clients created for an event loop are closed with it; those of the program are not."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from collections.abc import Awaitable
from typing import Any

import pytest
from support.fronts import LEGACY
from support.waiting import until

from redis_lock_decorators import Locks

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


def run_by_uvloop(main: Awaitable[Any]) -> Any:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is in the extra test")
    return uvloop.run(main)


RUNS = pytest.mark.parametrize("run", [asyncio.run, run_by_uvloop], ids=["asyncio", "uvloop"])


class Hook:
    """A hook that creates a client for each event loop."""

    def __init__(self, server: Any, **options: Any) -> None:
        self._options = {"port": server.port, **options}
        self.made: list[Any] = []

    def __call__(self) -> Any:
        from redis.asyncio import Redis

        self.made.append(Redis(**self._options))
        return self.made[-1]

    def open(self) -> list[Any]:
        """The open connections."""
        return [one for client in self.made for one in connections(client) if one.is_connected]


def connections(client: Any) -> list[Any]:
    pool = client.connection_pool
    return [*pool._available_connections, *pool._in_use_connections]


async def contend(locks: Locks, name: str) -> None:
    """Hold a lock that other tasks wait for."""

    async def enter() -> None:
        async with locks.async_lock(name):
            await asyncio.sleep(0.01)

    await asyncio.gather(*(enter() for _ in range(3)))


@RUNS
@pytest.mark.parametrize("size", [100, 3])
def test_clients_of_a_hook_are_closed_with_their_loops(server, name, run, size):
    hook = Hook(server, max_connections=size)
    locks = Locks(get_async_redis_connection=hook)

    for _ in range(2):
        run(contend(locks, name))

    assert len(hook.made) == 2
    assert hook.open() == []


@RUNS
def test_clients_of_the_environment_leave_no_resource_warning(server, name, run, monkeypatch):
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{server.port}/0")
    locks = Locks()
    gc.collect()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            run(contend(locks, name))
            gc.collect()

    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []


@pytest.mark.parametrize("given_to", ["locks", "lock"])
def test_client_of_the_program_stays_open_when_its_loop_ends(server, name, given_to):
    hook, loop = Hook(server), asyncio.new_event_loop()

    async def main() -> Any:
        client = hook()
        await client.ping()
        locks = Locks(client=client) if given_to == "locks" else Locks()
        async with locks.async_lock(name, client=None if given_to == "locks" else client):
            return client

    client = loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())

    assert len(hook.open()) == 1
    loop.run_until_complete(client.aclose())
    loop.close()


@RUNS
def test_connections_of_locks_are_closed_at_the_end_of_each_loop(server, direct, name, run):
    """Also if the client goes on to be used, on other loops."""
    from redis.asyncio import Redis

    locks = Locks(client=Redis(port=server.port))

    async def main():
        await contend(locks, name)

    before = len(direct.client_list())
    gc.disable()
    try:
        for _ in range(5):
            run(main())
        until(lambda: len(direct.client_list()) == before)
    finally:
        gc.enable()


@pytest.mark.parametrize("given", ["client", "hook"])
def test_client_of_many_loops_has_one_reference_with_a_callback(server, name, given):
    """Several of them let Python 3.11 crash if they are garbage when the client is freed."""
    from redis.asyncio import Redis

    client = Redis(port=server.port)
    options = {"client": {"client": client}, "hook": {"get_async_redis_connection": lambda: client}}
    locks = Locks(**options[given])
    hook = locks._settings.get_async_redis_connection
    for _ in range(3):
        asyncio.run(contend(locks, name))

    for thing in (client, hook):
        found = [one for one in weakref.getweakrefs(thing) if one.__callback__ is not None]
        assert len(found) <= 1, thing


@RUNS
def test_lock_of_a_generator_is_released_before_its_loop_ends(server, direct, name, run):
    """The event loop closes all generators concurrently, in any order."""
    hook = Hook(server)
    locks, left = Locks(get_async_redis_connection=hook), []

    async def items() -> Any:
        async with locks.async_lock(name):
            try:
                yield 1
            finally:
                await asyncio.sleep(0.05)

    async def main() -> None:
        left.append(items())
        await anext(left[0])

    run(main())

    assert not direct.exists(f"sys:lock:{name}")
    assert hook.open() == []


@RUNS
def test_decorated_generator_holds_its_lock_until_its_loop_ends(server, direct, name, run):
    problems: list[Any] = []
    locks, left, held = Locks(get_async_redis_connection=Hook(server)), [], []

    @locks.redis_lock(name)
    async def items() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0.05)
            held.append(direct.exists(f"sys:lock:{name}"))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        left.append(items())
        await anext(left[0])

    run(main())

    assert problems == []
    assert held == [1]
    assert not direct.exists(f"sys:lock:{name}")


def test_unreleased_lease_does_not_keep_its_loop(server, name):
    hook = Hook(server)
    locks = Locks(get_async_redis_connection=hook)

    lease = asyncio.run(locks.async_lock(name, expire=30).acquire())

    assert lease is not None
    assert hook.open() == []


def test_closing_a_loop_without_shutdown_is_no_error(server, name, recwarn):
    hook, loop = Hook(server), asyncio.new_event_loop()

    loop.run_until_complete(contend(Locks(get_async_redis_connection=hook), name))
    loop.close()
    gc.collect()

    assert "async generator" not in "".join(str(one.message) for one in recwarn)
