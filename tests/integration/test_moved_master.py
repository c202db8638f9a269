"""A failover behind one address: old connections lead to the former master, now a replica."""

import contextlib
import inspect
import threading

import pytest
from support.fronts import do, wrap
from support.leftovers import until
from support.proxy import FaultProxy

from redis_lock_decorators.testing import LocalServer


@pytest.fixture
def new_master():
    """The server that is the master after the failover."""
    with LocalServer() as server:
        yield server


def switch(proxy, frail, new_master):
    """Make the old master a replica without a master, and lead new connections to the new one."""
    with contextlib.closing(frail.client()) as old, contextlib.closing(new_master.client()) as new:
        for key in old.keys("sys:lock:*"):
            new.set(key, old.get(key), px=old.pttl(key))
        old.config_set("replica-serve-stale-data", "yes")
        old.execute_command("REPLICAOF", "127.0.0.1", "1")
    proxy.server = (new_master.host, new_master.port)


@pytest.fixture
def proxy(frail):
    """A proxy in front of the first master."""
    with FaultProxy(frail.host, frail.port) as proxy:
        yield proxy


async def open_connections(client, count=3):
    """Open idle connections of the client to the current server."""
    pool = client.connection_pool
    some = [await do(pool.get_connection(*_named(pool))) for _ in range(count)]
    for one in some:
        await do(one.connect())
        await do(pool.release(one))


def _named(pool):
    parameters = inspect.signature(pool.get_connection).parameters.values()
    first = next(iter(parameters), None)
    return ("PING",) if first is not None and first.default is inspect.Parameter.empty else ()


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_lock_is_released_at_the_new_master(
    front, frail, new_master, proxy, name, method, kind
):
    client = front.client(proxy)
    if kind == "wrapped":
        wrap(client)
    lock = front.package.RedisLock(name, client=client, release_method=method, auto_renew=False)
    lease = await do(lock.acquire())
    await open_connections(client)

    switch(proxy, frail, new_master)
    await do(lease.release())

    with contextlib.closing(new_master.client()) as direct:
        assert not direct.exists(lease.key)
    assert not lease.lost


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
async def test_lock_is_acquired_at_the_new_master(front, frail, new_master, proxy, name, kind):
    client = front.client(proxy)
    if kind == "wrapped":
        wrap(client)
    await open_connections(client)
    switch(proxy, frail, new_master)

    lock = front.package.RedisLock(name, client=client, acquire_time=4)
    async with front.held(lock) as lease:
        with contextlib.closing(new_master.client()) as direct:
            assert direct.get(lease.key) == lease.identifier.encode()


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
async def test_lock_is_renewed_at_the_new_master(front, frail, new_master, proxy, name, kind):
    client = front.client(proxy)
    if kind == "wrapped":
        wrap(client)
    lease = await do(front.package.RedisLock(name, client=client, expire=3).acquire())
    before = lease.deadline
    await open_connections(client)

    switch(proxy, frail, new_master)
    await until(front, lambda: lease.lost or lease.deadline > before + 0.5)

    assert not lease.lost
    await do(lease.release())


async def test_waiter_does_not_stay_at_the_old_master(front, frail, new_master, proxy, name):
    key, client = f"sys:lock:{name}", front.client(proxy)

    async def waits():
        lock = front.package.RedisLock(name, client=client, acquire_time=10)
        lease = await do(lock.acquire())
        assert lease is not None, "the waiter asks a server that is no longer the master"
        await do(lease.release())
        return lease.identifier

    with contextlib.closing(frail.client()) as old, contextlib.closing(new_master.client()) as new:
        old.set(key, "another program", px=60_000)

        async def switches():
            await until(front, lambda: subscriber_checks(old) >= 5)
            old.execute_command("REPLICAOF", "127.0.0.1", "1")
            proxy.server = (new_master.host, new_master.port)

        identifier, _ = await front.elsewhere(waits, switches)

        assert isinstance(identifier, str), identifier
        assert not new.exists(key)


def subscriber_checks(client):
    """The number of requests for the subscribers of a channel."""
    counts = client.info("commandstats").items()
    return sum(count["calls"] for name, count in counts if "cmdstat_pubsub" in name)


@contextlib.contextmanager
def without_replicas(frail, seconds):
    """Make the server refuse writes for ``seconds``, as if it had lost its replicas."""
    with contextlib.closing(frail.client()) as direct:
        direct.config_set("min-replicas-to-write", 1)
        back = threading.Timer(seconds, direct.config_set, ["min-replicas-to-write", 0])
        back.start()
        yield
        back.join()


async def test_waiter_waits_while_replicas_are_missing(front, frail, name):
    client = front.client(frail)

    with without_replicas(frail, 0.4):
        async with front.held(
            front.package.RedisLock(name, client=client, acquire_time=20)
        ) as lease:
            assert await do(lease.owned())


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_lock_is_released_once_missing_replicas_are_back(front, frail, name, method):
    lock = front.package.RedisLock(name, client=front.client(frail), release_method=method)
    lease = await do(lock.acquire())

    with without_replicas(frail, 0.4):
        await do(lease.release())

    with contextlib.closing(frail.client()) as direct:
        assert not direct.exists(lease.key)
