"""One lock's trouble is its own: all leases of a process that share its background thread live on.

Many leases and waiters, of several clients and servers; then one member is harmed in some way.
"""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
import redis
from support.leftovers import BLOCKING, PATIENCE, until
from support.proxy import FaultProxy

from redis_lock_decorators import LockError, RedisLock

EXPIRE = 1.5
#: Leases that must not notice anything.
INNOCENT = 50
#: How long they are watched: longer than two leases.
WHILE = 2.2 * EXPIRE

pytestmark = pytest.mark.usefixtures("tidy")


class Innocent:
    """Leases that are renewed, and waiters who hear, at a server where all is well."""

    def __init__(self, server, name, **options):
        self.server, self.name = server, name
        self.clients = [server.client(**options), server.client(decode_responses=True)]
        self.told = []
        self.leases = [self.lock(f"{number}").acquire() for number in range(INNOCENT)]
        self.waiters = [threading.Thread(target=self._wait, args=(n,)) for n in range(5)]
        self.entered = []
        for waiter in self.waiters:
            waiter.start()

    def lock(self, name, **options):
        client = self.clients[hash(name) % len(self.clients)]
        note = lambda lease, why: self.told.append((lease.key, why))  # noqa: E731
        options = {"acquire_time": PATIENCE, "on_lost": note, **options}
        return RedisLock(f"{self.name}:{name}", client=client, expire=EXPIRE, **options)

    def _wait(self, number):
        with self.lock(f"{number}"):
            self.entered.append(number)

    def assert_unharmed(self):
        """They were renewed; a loss is told; they can be let go, and then their waiters enter."""
        direct = self.server.client()
        assert ([lease.key for lease in self.leases if lease.lost], self.told) == ([], [])
        assert direct.exists(*[lease.key for lease in self.leases]) == INNOCENT
        lost = self.leases.pop()
        direct.delete(lease_key := lost.key)
        BLOCKING.run(until(BLOCKING, lambda: self.told))
        assert [key for key, _ in self.told] == [lease_key]
        for lease in self.leases:
            lease.release()
        for waiter in self.waiters:
            waiter.join(PATIENCE)
        assert sorted(self.entered) == list(range(5))
        assert not direct.exists(*[lease.key for lease in self.leases])


@contextlib.contextmanager
def unharmed(server, name, **options):
    """Nobody innocent is harmed by what happens in the block, which is given them."""
    innocent = Innocent(server, name, **options)
    yield innocent
    time.sleep(WHILE)
    innocent.assert_unharmed()


# A server's trouble


def _halve(frail, proxy):
    proxy.halves = True


def _hang(frail, proxy):
    frail.pause()


def _swallow(frail, proxy):
    proxy.black_hole = True


def _refuse(frail, proxy):
    frail.kill()


def _reset(frail, proxy):
    proxy.drop_reply(lambda command: True, times=1_000_000)


def _say(text):
    def harm(frail, proxy):
        proxy.says = text

    return harm


HARMS = {
    "half a reply": _halve,
    "hangs": _hang,
    "silent": _swallow,
    "refuses": _refuse,
    "resets": _reset,
    "LOADING": _say(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "READONLY": _say(b"-READONLY You can't write against a read only replica.\r\n"),
    "garbage": _say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "another's reply": _say(b"$3\r\nabc\r\n"),
    "too much": _say(b"+OK\r\n" * 1000),
    "endless": _say(b"*1000000000\r\n"),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_servers_trouble_harms_no_lease_at_another(server, frail, name, harm):
    with FaultProxy(frail.host, frail.port) as proxy:
        told, client = [], proxy.client()
        lock = RedisLock(
            name, client=client, expire=EXPIRE, on_lost=lambda lease, why: told.append(why)
        )
        held = lock.acquire()
        waiter = threading.Thread(target=_wait_in_vain, args=(proxy, name))
        waiter.start()
        time.sleep(EXPIRE / 2)  # it is renewed once, and its waiter listens
        with unharmed(server, name):
            harm(frail, proxy)
            BLOCKING.run(until(BLOCKING, lambda: told))
        assert held.lost
        proxy.black_hole = True
        waiter.join(PATIENCE)
        if harm is _hang:
            frail.resume()


def _wait_in_vain(proxy, name):
    lock = RedisLock(name, client=proxy.client(), expire=EXPIRE, acquire_time=3 * EXPIRE)
    with contextlib.suppress(redis.RedisError, LockError), lock:
        pass


# A key's trouble, at the same server and over the same connection


@pytest.mark.parametrize("value", [b"\xff\xfe", b"", b"another", "a list"], ids=repr)
def test_what_lies_in_one_key_harms_no_other(server, direct, name, value):
    with unharmed(server, name) as innocent:
        for client in innocent.clients:
            told = []
            lock = RedisLock(
                f"{name}:sick",
                client=client,
                expire=2 * EXPIRE,
                on_lost=lambda lease, why, told=told: told.append(why),
            )
            lease = lock.acquire()
            direct.delete(lease.key)
            if value == "a list":
                direct.rpush(lease.key, "other data")
            else:
                direct.set(lease.key, value)
            BLOCKING.run(until(BLOCKING, lambda told=told: told))
            direct.delete(lease.key)


# A holder's trouble


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_one_on_lost_raises_harms_no_other(server, direct, name, error, caplog):
    called = threading.Event()

    def fail(lease, why):
        called.set()
        raise error("on purpose")

    with unharmed(server, name) as innocent:
        lease = innocent.lock("sick", on_lost=fail).acquire()
        direct.delete(lease.key)
        assert called.wait(PATIENCE)
    caplog.clear()  # the log refers to the frames of the test, with its clients


def test_a_name_that_cannot_be_written_harms_no_other(server, name):
    with unharmed(server, name) as innocent, pytest.raises(LockError):
        innocent.lock("\ud800").acquire()
