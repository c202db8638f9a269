"""Releases by WATCH, MULTI and EXEC while the connection breaks."""

from __future__ import annotations

import pytest
from support.fronts import do
from support.leftovers import TIDY_FRONTS

FRONTS = TIDY_FRONTS


def of(verb):
    return lambda command: command[0].upper() == verb


@pytest.mark.parametrize("verb", [b"WATCH", b"GET", b"MULTI", b"EXEC"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_lock_is_released_though_the_connection_breaks(
    front, proxy, direct, name, verb, fate
):
    client = front.client(proxy)
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))
    getattr(proxy, fate)(of(verb))

    released = front.package.release_lock(client, name, identifier, method="transaction")

    assert await do(released) is True
    assert not direct.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("verb", [b"WATCH", b"GET", b"MULTI", b"EXEC"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_block_ends_normally_though_the_connection_breaks(
    front, proxy, direct, name, verb, fate, caplog
):
    client = front.client(proxy)
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


@pytest.mark.parametrize("verb", [b"WATCH", b"GET", b"MULTI", b"EXEC"])
async def test_withdrawn_right_to_a_transaction_releases_no_lock_of_another(
    front, server, proxy, direct, name, verb
):
    """At that command the right is withdrawn, and another client holds the lock."""
    direct.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all")
    client = front.client(proxy, username="limited", password="secret")  # noqa: S106
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))
    released = front.package.release_lock(client, name, identifier, method="transaction")
    assert await do(released) is True
    identifier = await do(front.package.acquire_lock(client, name, 0, 30))

    def withdraw(command):
        if command[0].upper() == verb and direct.get(f"sys:lock:{name}") != b"another":
            direct.execute_command("ACL", "SETUSER", "limited", "-multi")
            direct.set(f"sys:lock:{name}", "another", px=30_000)
        return False

    proxy.drop_reply(withdraw)
    released = front.package.release_lock(client, name, identifier, method="transaction")

    assert await do(released) is False
    assert direct.get(f"sys:lock:{name}") == b"another"
    direct.execute_command("ACL", "DELUSER", "limited")
