"""Releases by WATCH, GET, MULTI and EXEC whose connection breaks at one of them."""

import pytest
from support.fronts import LEGACY, do, wrap

from redis_lock_decorators import LockLostError
from redis_lock_decorators._lua import script
from redis_lock_decorators._rules.keys import with_queue

RECHECK = script("recheck")

lost_messages = pytest.mark.parametrize(
    ("fate", "verb"),
    [(fate, verb) for fate in ("drop_request", "drop_reply") for verb in ("WATCH", "GET", "EXEC")],
)


def lose(proxy, fate, command_name):
    """Lose the next request with a command, or its reply."""
    getattr(proxy, fate)(lambda command: command[0] == command_name.encode())


@lost_messages
async def test_lease_is_released_though_a_message_is_lost(front, proxy, direct, name, fate, verb):
    lock = front.package.RedisLock(name, client=front.client(proxy), release_method="transaction")
    lease = await do(lock.acquire())
    lose(proxy, fate, verb)

    await do(lease.release())

    assert not direct.exists(lease.key)
    assert not lease.lost


@lost_messages
async def test_block_ends_normally_though_a_message_is_lost(
    front, proxy, direct, name, fate, verb, caplog
):
    lock = front.package.RedisLock(name, client=front.client(proxy), release_method="transaction")

    async with front.held(lock) as lease:
        lose(proxy, fate, verb)

    assert not direct.exists(lease.key)
    assert not caplog.records


@lost_messages
async def test_function_releases_though_a_message_is_lost(front, proxy, direct, name, fate, verb):
    client = front.client(proxy)
    identifier = await do(front.package.acquire_lock(client, name))
    lose(proxy, fate, verb)

    assert await do(front.package.release_lock(client, name, identifier)) is True

    assert not direct.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("released_by", ["lease", "function"])
async def test_lock_released_without_a_reply_is_handed_off(front, proxy, direct, name, released_by):
    client = front.client(proxy)
    lease = await do(
        front.package.RedisLock(name, client=client, release_method="transaction").acquire()
    )
    _, queue, _ = with_queue((lease.key.encode(),))
    direct.zadd(queue, {"redis-lock:ended|waiter|1000": 1})
    lose(proxy, "drop_reply", "EXEC")

    if released_by == "lease":
        await do(lease.release())
    else:
        await do(front.package.release_lock(client, name, lease.identifier))

    words = RECHECK.sha, RECHECK.text
    assert any(word in command for command in proxy.commands for word in words)
    direct.delete(queue)


async def test_deleted_key_is_a_loss_though_a_message_is_lost(front, proxy, direct, name):
    lock = front.package.RedisLock(name, client=front.client(proxy), release_method="transaction")
    lease = await do(lock.acquire())
    direct.delete(lease.key)
    lose(proxy, "drop_reply", "GET")

    with pytest.raises(LockLostError, match="gone"):
        await do(lease.release())


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("kind", ["plain", "wrapped"])
async def test_binary_value_of_another_holder_is_a_loss(
    front, server, direct, name, protocol, kind, method
):
    options = {} if LEGACY else {"protocol": protocol}
    client = front.client(server, decode_responses=True, **options)
    if kind == "wrapped":
        wrap(client)
    lock = front.package.RedisLock(name, client=client, release_method=method)

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.set(lease.key, b"\xff\xfe\x80", px=60000)

    direct.delete(lease.key)


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_other_data_in_the_key_are_a_loss_by_every_method(
    front, server, direct, name, method
):
    lock = front.package.RedisLock(name, client=front.client(server), release_method=method)

    with pytest.raises(LockLostError, match="other data"):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            direct.rpush(lease.key, "other data")

    direct.delete(lease.key)
