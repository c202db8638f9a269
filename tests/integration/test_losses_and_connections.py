"""A lock that was lost while its holder was inside is told, whatever became of the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fronts import LEGACY, do

from redis_lock_decorators import LockLostError, LockNotOwnedError
from redis_lock_decorators.testing import LocalServer

if not LEGACY:
    import redis_lock_decorators.asyncio.lock
    import redis_lock_decorators.lock  # noqa: F401


@pytest.fixture
def own() -> Iterator[LocalServer]:
    """A server that may be restarted."""
    with LocalServer() as server:
        yield server


def restart(server: LocalServer, key: str) -> None:
    server.restart()


def cut_and_delete(server: LocalServer, key: str) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        client.delete(key)


every_loss = pytest.mark.parametrize("lose", [restart, cut_and_delete])
every_holder = pytest.mark.parametrize("holder", [None, "another"])


def take(server: LocalServer, key: str, holder: str | None) -> None:
    if holder is not None:
        with server.client() as client:
            assert client.set(key, holder, nx=True, px=30_000)


@every_loss
@every_holder
async def test_lease_lost_beside_its_connection_is_told_at_its_end(front, own, name, lose, holder):
    told = []
    lock = front.package.RedisLock(
        name, client=front.client(own), expire=30, on_lost=lambda lease, why: told.append(why)
    )
    async with front.held(lock):  # the scripts are known from here on
        pass

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            lose(own, lease.key)
            take(own, lease.key, holder)

    assert lease.lost
    assert len(told) == 1


@every_loss
@every_holder
async def test_stand_in_lost_beside_its_connection_is_told(front, own, name, lose, holder):
    lock = front.package.lock.Lock(front.client(own), name, timeout=30)
    assert await do(lock.acquire())
    await do(lock.release())  # the scripts are known from here on
    assert await do(lock.acquire())
    lose(own, name)
    take(own, name, holder)

    with pytest.raises(LockNotOwnedError):
        await do(lock.release())
