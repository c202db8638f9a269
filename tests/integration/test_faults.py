"""Lost replies and requests, silent and dead servers, by a proxy of a real server."""

from __future__ import annotations

import time

import pytest
import redis
from support.fronts import LEGACY, do, wrap

from redis_lock_decorators import LockTimeoutError
from redis_lock_decorators._io.transport.watch import Watch
from redis_lock_decorators.testing import LocalServer


@pytest.fixture(params=["direct", "wrapped"])
def client(front, proxy, request):
    """A client of the proxy, bypassing its ``execute_command`` or through it."""
    client = front.client(proxy)
    if request.param == "wrapped":
        if LEGACY:
            pytest.skip("redis-py 3.5 does not resend on its own")
        wrap(client)
    return client


def acquires(command):
    return command[0].startswith(b"EVAL") and len(command) == 7


def releases(command):
    return command[0].startswith(b"EVAL") and len(command) == 6


def is_named(*names):
    return lambda command: command[0].upper() in names


async def test_lost_reply_of_acquire_lock_causes_no_delay(front, client, proxy, direct, name):
    def sets(command):  # by script if the client may resend requests on its own
        return command[0] == b"SET" or command[0].startswith(b"EVAL")

    proxy.drop_reply(sets)
    started = time.monotonic()

    identifier = await do(front.package.acquire_lock(client, name, 10, 10))

    assert time.monotonic() - started < 5
    assert direct.get(f"sys:lock:{name}").decode() == identifier
    assert len([command for command in proxy.commands if sets(command)]) >= 2


@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_lost_message_of_an_acquire_causes_no_delay(front, client, proxy, direct, name, fate):
    lock = front.package.RedisLock(name, client=client)
    async with front.held(lock):  # from here on the server knows the script
        pass
    getattr(proxy, fate)(acquires)
    started = time.monotonic()

    async with front.held(lock) as lease:
        assert time.monotonic() - started < 5
        assert direct.get(f"sys:lock:{name}").decode() == lease.identifier
        assert lease.remaining() <= 9.9


@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_lost_message_of_a_release_is_no_loss(front, client, proxy, direct, name, fate):
    lock = front.package.RedisLock(name, client=client)

    async with front.held(lock):
        getattr(proxy, fate)(releases)

    assert not direct.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_release_lock_succeeds_though_a_message_is_lost(
    front, client, proxy, direct, name, fate, method
):
    identifier = await do(front.package.acquire_lock(client, name))
    commands = {"script": (b"EVALSHA", b"EVAL"), "transaction": (b"EXEC",), "native": (b"DELIFEQ",)}
    getattr(proxy, fate)(is_named(*commands[method]))

    released = await do(front.package.release_lock(client, name, identifier, method=method))

    assert released is True
    assert not direct.exists(f"sys:lock:{name}")


async def test_key_changed_between_watch_and_exec_is_kept(front, proxy, direct, name, monkeypatch):
    client = front.client(proxy)
    # After its first transaction a client sends MULTI with the rest.
    before = await do(front.package.acquire_lock(client, f"{name}:before"))
    assert await do(front.package.release_lock(client, f"{name}:before", before))
    identifier = await do(front.package.acquire_lock(client, name))
    key, execute = f"sys:lock:{name}", Watch.execute

    async def after_a_change(self, *commands, sending=None):
        monkeypatch.undo()
        direct.set(key, "another")
        return await execute(self, *commands, sending=sending)

    monkeypatch.setattr(Watch, "execute", after_a_change)

    assert await do(front.package.release_lock(client, name, identifier)) is False
    assert direct.get(key) == b"another"


async def test_lost_reply_of_an_extend_extends_once(front, client, proxy, direct, name):
    lock = front.package.RedisLock(name, client=client)

    async with front.held(lock) as lease:
        await do(lease.extend(20))
        proxy.drop_reply(acquires)  # extend has as many arguments
        await do(lease.extend(30))

        assert direct.pttl(f"sys:lock:{name}") <= 30_000
        assert 28 < lease.remaining() < 30


@pytest.mark.parametrize("is_new", [True, False])
async def test_refused_connection_raises_the_clients_own_error(front, name, is_new):
    with LocalServer() as server:
        client = front.client(server)
        if not is_new:
            await do(client.ping())
        server.kill()
        started = time.monotonic()

        # No request waits for a reply: the client itself would try longer to connect.
        with pytest.raises(redis.exceptions.ConnectionError, match="onnect"):
            await do(front.package.RedisLock(name, client=client, acquire_time=2).acquire())
        with pytest.raises(redis.exceptions.ConnectionError, match="onnect"):
            await do(front.package.acquire_lock(client, name, 0))

        assert time.monotonic() - started < 4


async def test_wait_for_a_silent_server_ends_in_time(front, proxy, direct, name):
    client = front.client(proxy, socket_timeout=None)
    lock = front.package.RedisLock(name, client=client, acquire_time=1.5)
    async with front.held(lock):
        pass
    proxy.black_hole = True
    started = time.monotonic()

    with pytest.raises(redis.exceptions.TimeoutError):
        await do(lock.acquire())

    assert 1.4 < time.monotonic() - started < 2.5
    assert not direct.exists(f"sys:lock:{name}")


async def test_first_connection_to_a_silent_server_ends_in_time(front, proxy, name):
    proxy.black_hole = True
    client = front.client(proxy, socket_timeout=None)
    started = time.monotonic()

    with pytest.raises((redis.exceptions.TimeoutError, redis.exceptions.ConnectionError)):
        await do(front.package.RedisLock(name, client=client, acquire_time=1.5).acquire())

    assert time.monotonic() - started < 3


async def test_server_that_restarts_within_the_wait_is_used(front, name):
    with LocalServer() as server:
        client = front.client(server)
        lock = front.package.RedisLock(name, client=client, acquire_time=20)
        async with front.held(lock):
            pass
        server.kill()

        async def restart():
            await front.sleep(0.3)
            server.restart()

        async def acquire():
            async with front.held(lock) as lease:
                return await do(lease.owned())

        assert await front.elsewhere(restart, acquire) == [None, True]


async def test_release_that_cannot_be_sent_is_logged(front, name, caplog):
    with LocalServer() as server:
        client = front.client(server)
        lock = front.package.RedisLock(name, client=client, expire=0.4)

        async with front.held(lock):
            server.kill()

    assert "could not be released" in caplog.text


async def test_failed_release_can_be_called_again(front, name):
    with LocalServer() as server:
        client = front.client(server)
        lease = await do(front.package.RedisLock(name, client=client, expire=0.6).acquire())
        server.pause()
        with pytest.raises(redis.exceptions.RedisError):
            await do(lease.release())
        server.resume()

        with pytest.raises(Exception, match="ended before"):  # its 0.6 s have elapsed
            await do(lease.release())


async def test_password_of_the_client_is_in_no_error(front, name):
    with LocalServer("--requirepass", "s3cret-word") as server:
        client = front.client(server, password="another-s3cret")  # noqa: S106  # it is the test's subject

        with pytest.raises(redis.exceptions.RedisError) as caught:
            await do(front.package.RedisLock(name, client=client, acquire_time=0).acquire())

    assert not isinstance(caught.value, LockTimeoutError)
    assert "s3cret" not in str(caught.value)


async def test_uncontended_block_takes_two_round_trips(front, proxy, name):
    client = front.client(proxy)
    lock = front.package.RedisLock(name, client=client)
    async with front.held(lock):
        pass
    proxy.clear()

    for _ in range(10):
        async with front.held(front.package.RedisLock(name, client=client)):
            pass

    assert [command[0] for command in proxy.commands] == [b"EVALSHA"] * 20


async def test_pool_exhausted_by_the_body_does_not_prevent_the_release(front, server, direct, name):
    client = front.client(server, max_connections=1)
    lock = front.package.RedisLock(name, client=client)

    async with front.held(lock):
        watching = client.pipeline()
        await do(watching.watch("anything"))

    assert not direct.exists(f"sys:lock:{name}")
    await do(watching.reset())
