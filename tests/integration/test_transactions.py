"""Releases by WATCH, MULTI and EXEC while the connection breaks."""

from __future__ import annotations

import pytest
from support.fronts import do
from support.leftovers import TIDY_FRONTS

FRONTS = TIDY_FRONTS


#: Earlier transactions of the client: only for the first is MULTI sent separately.
earlier = pytest.mark.parametrize("earlier", [0, 1])


def of(verb):
    return lambda command: command[0].upper() == verb


async def transact(front, client, name, times):
    """Acquire a lock and release it by a transaction, ``times`` times."""
    for _ in range(times):
        identifier = await do(front.package.acquire_lock(client, name, 0, 30))
        released = front.package.release_lock(client, name, identifier, method="transaction")
        assert await do(released) is True


@earlier
@pytest.mark.parametrize("verb", [b"WATCH", b"GET", b"MULTI", b"EXEC"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_lock_is_released_though_the_connection_breaks(
    front, proxy, direct, name, verb, fate, earlier
):
    client = front.client(proxy)
    await transact(front, client, name, earlier)
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))
    getattr(proxy, fate)(of(verb))

    released = front.package.release_lock(client, name, identifier, method="transaction")

    assert await do(released) is True
    assert not direct.exists(f"sys:lock:{name}")


@earlier
@pytest.mark.parametrize("verb", [b"WATCH", b"GET", b"MULTI", b"EXEC"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_block_ends_normally_though_the_connection_breaks(
    front, proxy, direct, name, verb, fate, earlier, caplog
):
    client = front.client(proxy)
    await transact(front, client, name, earlier)
    lock = front.package.RedisLock(name, client=client, release_method="transaction")

    async with front.held(lock):
        getattr(proxy, fate)(of(verb))

    assert not direct.exists(f"sys:lock:{name}")
    assert caplog.records == []


async def test_another_holders_lock_is_kept_though_the_connection_breaks(
    front, proxy, direct, name
):
    client = front.client(proxy)
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))
    direct.set(f"sys:lock:{name}", "another", px=30_000)
    proxy.drop_reply(of(b"GET"))

    released = front.package.release_lock(client, name, identifier, method="transaction")

    assert await do(released) is False
    assert direct.get(f"sys:lock:{name}") == b"another"
