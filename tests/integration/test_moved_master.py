"""A failover behind one address: old connections lead to a replica then."""

import contextlib
import inspect
import threading

import pytest
from support.fronts import do, wrap
from support.leftovers import until
from support.proxy import FaultProxy

from redis_lock_decorators.testing import LocalServer


@pytest.fixture
def successor():
    """The server that is the master after the failover."""
    with LocalServer() as server:
        yield server


def switch(proxy, frail, successor):
    """Make the one a replica without a master, and lead new connections to the other."""
    with contextlib.closing(frail.client()) as old, contextlib.closing(successor.client()) as new:
        for key in old.keys("sys:lock:*"):
            new.set(key, old.get(key), px=old.pttl(key))
        old.config_set("replica-serve-stale-data", "yes")
        old.execute_command("REPLICAOF", "127.0.0.1", "1")
    proxy.server = (successor.host, successor.port)


@pytest.fixture
def way(frail):
    """A proxy before the first master."""
    with FaultProxy(frail.host, frail.port) as proxy:
        yield proxy


async def opened(client, many=3):
    """Let the client have idle connections to the server of now."""
    pool = client.connection_pool
    some = [await do(pool.get_connection(*_named(pool))) for _ in range(many)]
    for one in some:
        await do(one.connect())
        await do(pool.release(one))


def _named(pool):
    parameters = inspect.signature(pool.get_connection).parameters.values()
    first = next(iter(parameters), None)
    return ("PING",) if first is not None and first.default is inspect.Parameter.empty else ()


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_lock_is_let_go_at_the_new_master(front, frail, successor, way, name, method, kind):
    client = front.client(way)
    if kind == "wrapped":
        wrap(client)
    lock = front.package.RedisLock(name, client=client, release_method=method, auto_renew=False)
    lease = await do(lock.acquire())
    await opened(client)

    switch(way, frail, successor)
    await do(lease.release())

    with contextlib.closing(successor.client()) as direct:
        assert not direct.exists(lease.key)
    assert not lease.lost


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
async def test_lock_is_taken_at_the_new_master(front, frail, successor, way, name, kind):
    client = front.client(way)
    if kind == "wrapped":
        wrap(client)
    await opened(client)
    switch(way, frail, successor)

    lock = front.package.RedisLock(name, client=client, acquire_time=4)
    async with front.held(lock) as lease:
        with contextlib.closing(successor.client()) as direct:
            assert direct.get(lease.key) == lease.identifier.encode()


@pytest.mark.parametrize("kind", ["plain", "wrapped"])
async def test_lock_is_renewed_at_the_new_master(front, frail, successor, way, name, kind):
    client = front.client(way)
    if kind == "wrapped":
        wrap(client)
    lease = await do(front.package.RedisLock(name, client=client, expire=3).acquire())
    before = lease.deadline
    await opened(client)

    switch(way, frail, successor)
    await until(front, lambda: lease.lost or lease.deadline > before + 0.5)

    assert not lease.lost
    await do(lease.release())


async def test_waiter_does_not_stay_at_the_old_master(front, frail, successor, way, name):
    key, client = f"sys:lock:{name}", front.client(way)

    async def waits():
        lock = front.package.RedisLock(name, client=client, acquire_time=10)
        lease = await do(lock.acquire())
        assert lease is not None, "it asks a server that is no master any more"
        await do(lease.release())
        return lease.identifier

    with contextlib.closing(frail.client()) as old, contextlib.closing(successor.client()) as new:
        old.set(key, "another program", px=60_000)

        async def switches():
            await until(front, lambda: looks(old) >= 5)
            old.execute_command("REPLICAOF", "127.0.0.1", "1")
            way.server = (successor.host, successor.port)

        identifier, _ = await front.elsewhere(waits, switches)

        assert isinstance(identifier, str), identifier
        assert not new.exists(key)


def looks(client):
    """How often a server was asked whether a channel is listened to."""
    counts = client.info("commandstats").items()
    return sum(count["calls"] for name, count in counts if "cmdstat_pubsub" in name)


@contextlib.contextmanager
def without_replicas(frail, seconds):
    """Let the server refuse to write for a while, as if its replicas were gone for that long."""
    with contextlib.closing(frail.client()) as direct:
        direct.config_set("min-replicas-to-write", 1)
        back = threading.Timer(seconds, direct.config_set, ["min-replicas-to-write", 0])
        back.start()
        yield
        back.join()


async def test_lock_is_waited_for_while_replicas_are_missing(front, frail, name):
    client = front.client(frail)

    with without_replicas(frail, 0.4):
        async with front.held(front.package.RedisLock(name, client=client, acquire_time=20)):
            pass


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_lock_is_let_go_when_missing_replicas_are_back(front, frail, name, method):
    lock = front.package.RedisLock(name, client=front.client(frail), release_method=method)
    lease = await do(lock.acquire())

    with without_replicas(frail, 0.4):
        await do(lease.release())

    with contextlib.closing(frail.client()) as direct:
        assert not direct.exists(lease.key)
