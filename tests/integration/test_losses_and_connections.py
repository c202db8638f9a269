"""The loss of a held lock is reported, even if the connection broke at the same time."""

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
    """A server of this test, which it may restart."""
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


def set_holder(server: LocalServer, key: str, holder: str | None) -> None:
    if holder is not None:
        with server.client() as client:
            assert client.set(key, holder, nx=True, px=30_000)


@every_loss
@every_holder
async def test_lease_lost_with_its_connection_is_reported_at_exit(front, own, name, lose, holder):
    reasons = []
    lock = front.package.RedisLock(
        name, client=front.client(own), expire=30, on_lost=lambda lease, why: reasons.append(why)
    )
    async with front.held(lock):  # the scripts are known from here on
        pass

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            lose(own, lease.key)
            set_holder(own, lease.key, holder)

    assert lease.lost
    assert len(reasons) == 1


@every_loss
@every_holder
async def test_redispy_lock_lost_with_its_connection_is_reported(front, own, name, lose, holder):
    lock = front.package.lock.Lock(front.client(own), name, timeout=30)
    assert await do(lock.acquire())
    await do(lock.release())  # the scripts are known from here on
    assert await do(lock.acquire())
    lose(own, name)
    set_holder(own, name, holder)

    with pytest.raises(LockNotOwnedError):
        await do(lock.release())
