"""A signal handler may use locks and clients of its own, and let their errors escape."""

from __future__ import annotations

import asyncio
import signal

import pytest
import redis
import redis.asyncio as aioredis
from support.interruptions import RAISED, interrupt_every_line, raise_by_turns

from redis_lock_decorators import LockNotOwnedError, LockTimeoutError, RedisLock
from redis_lock_decorators import asyncio as async_locks
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._lua import script
from redis_lock_decorators.lock import Lock

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Subclass(redis.Redis):
    """A client whose own methods are used."""

    def execute_command(self, *words, **options):
        return super().execute_command(*words, **options)


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def signalled(monkeypatch):
    """Send a signal, with a handler of the test, before or after a script."""
    kept = signal.getsignal(signal.SIGINT)

    def set_up(handler, moment, verb):
        plain, left = PrivatePool.exchange, [signal.SIGINT]
        signal.signal(signal.SIGINT, handler)

        def exchange(pool, connections, command, until, sending=None):
            is_due = command[1] == script(verb).sha and left
            if is_due and moment == "before":
                signal.raise_signal(left.pop())
            reply = plain(pool, connections, command, until, sending)
            if is_due and moment == "after":
                signal.raise_signal(left.pop())
            return reply

        monkeypatch.setattr(PrivatePool, "exchange", exchange)

    yield set_up
    signal.signal(signal.SIGINT, kept)


def uses_busy_lock(server, name):
    server.client().set(f"sys:lock:{name}:busy", "another", px=60_000)
    busy = RedisLock(f"{name}:busy", client=server.client(), acquire_time=0)

    def handler(number, frame):
        with busy:
            pass

    return handler, LockTimeoutError


def releases_lost_lock(server, name):
    held = RedisLock(f"{name}:lost", client=server.client()).acquire()
    server.client().delete(held.key)
    return lambda *_: held.release(), LockNotOwnedError


def reaches_no_server(server, name):
    def handler(*_):
        raise redis.ConnectionError("Connection refused")

    return handler, redis.ConnectionError


HANDLERS = pytest.mark.parametrize("make", [uses_busy_lock, releases_lost_lock, reaches_no_server])


@HANDLERS
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("verb", ["acquire", "release"])
@pytest.mark.parametrize("fails", [False, True])
def test_error_of_a_handler_leaves_the_block(
    server, client, name, signalled, caplog, make, moment, verb, fails
):
    handler, kind = make(server, name)
    losses = []
    lock = RedisLock(name, client=client, on_lost=lambda lease, why: losses.append(why))
    with lock:
        pass
    signalled(handler, moment, verb)

    with pytest.raises(kind), lock:
        if fails:
            raise LookupError

    assert not client.exists(f"sys:lock:{name}")
    assert not losses
    assert not caplog.records


@HANDLERS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_error_of_a_handler_during_an_extension_keeps_the_lease(
    server, client, name, signalled, make, moment
):
    handler, kind = make(server, name)
    with RedisLock(name, client=client) as lease:
        lease.extend(20)
        signalled(handler, moment, "extend")

        with pytest.raises(kind):
            lease.extend(20)

        assert lease.owned()


class Signalled(aioredis.Redis):
    """A client that gets a signal while it sends a command."""

    due = False

    async def execute_command(self, *words, **options):
        if self.due:
            self.due = False
            signal.raise_signal(signal.SIGTERM)
        return await super().execute_command(*words, **options)


@HANDLERS
def test_error_of_a_handler_leaves_the_block_of_a_task(server, client, name, make):
    handler, kind = make(server, name)
    losses = []

    async def work():
        async with Signalled(host=server.host, port=server.port) as own:
            lock = async_locks.RedisLock(name, client=own, on_lost=lambda *why: losses.append(why))
            async with lock:
                own.due = True

    kept = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(kind):
            asyncio.run(work())
    finally:
        signal.signal(signal.SIGTERM, kept)

    assert not client.exists(f"sys:lock:{name}")
    assert not losses


# At every line


@pytest.fixture(params=RAISED)
def kind(request, monkeypatch):
    """The class of the exception that is raised."""
    raise_by_turns(monkeypatch, request.param)


at_every_line = pytest.mark.usefixtures("kind")


@at_every_line
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
def test_failed_block_is_left_with_the_error_of_the_handler(client, name, method):
    losses = []
    options = {"on_lost": lambda lease, why: losses.append(why), "release_method": method}
    lock = RedisLock(name, client=client, **options)

    def work(interruption):
        try:
            with lock:
                interruption.__enter__()
                raise LookupError
        except LookupError:
            assert not interruption.happened, interruption.location
        finally:
            interruption.__exit__()
            assert not client.exists(f"sys:lock:{name}"), interruption.location
            assert not losses, interruption.location

    assert interrupt_every_line(work) > 50


@at_every_line
@pytest.mark.parametrize("quiet", [False, True])
def test_block_of_the_redispy_lock_is_left_with_the_error_of_the_handler(client, name, quiet):
    lock = Lock(client, name, timeout=20, raise_on_release_error=not quiet)

    def work(interruption):
        try:
            with interruption, lock:
                pass
        finally:
            assert not client.exists(name), interruption.location

    assert interrupt_every_line(work) > 50


@at_every_line
def test_release_by_the_clients_own_method_is_left_with_the_error_of_the_handler(server, name):
    client = Subclass(host=server.host, port=server.port)
    lock = RedisLock(name, client=client)

    def work(interruption):
        lease = lock.acquire()
        try:
            with interruption:
                lease.release()
        finally:
            assert not client.exists(f"sys:lock:{name}"), interruption.location

    assert interrupt_every_line(work) > 50
