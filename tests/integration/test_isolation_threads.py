"""A fault of one lock does not affect the other leases renewed by the same background thread.

Many leases and waiters use several clients and servers; then one of them has a fault.
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
#: Leases that must not be affected.
OTHERS = 50
#: Seconds for which they are observed: longer than two leases.
OBSERVED = 2.2 * EXPIRE

pytestmark = pytest.mark.usefixtures("tidy")


class OtherLeases:
    """Leases that are renewed, and waiters that are notified, at a healthy server."""

    def __init__(self, server, name, **options):
        self.server, self.name = server, name
        self.clients = [server.client(**options), server.client(decode_responses=True)]
        self.losses = []
        self.leases = [self.lock(f"{number}").acquire() for number in range(OTHERS)]
        self.waiters = [threading.Thread(target=self._wait, args=(n,)) for n in range(5)]
        self.entered = []
        for waiter in self.waiters:
            waiter.start()

    def lock(self, name, **options):
        client = self.clients[hash(name) % len(self.clients)]
        note = lambda lease, why: self.losses.append((lease.key, why))  # noqa: E731
        options = {"acquire_time": PATIENCE, "on_lost": note, **options}
        return RedisLock(f"{self.name}:{name}", client=client, expire=EXPIRE, **options)

    def _wait(self, number):
        with self.lock(f"{number}"):
            self.entered.append(number)

    def assert_unaffected(self):
        """Check that they were renewed, report a loss, can be released, and hand off to waiters."""
        direct = self.server.client()
        assert ([lease.key for lease in self.leases if lease.lost], self.losses) == ([], [])
        assert direct.exists(*[lease.key for lease in self.leases]) == OTHERS
        lost = self.leases.pop()
        direct.delete(lease_key := lost.key)
        BLOCKING.run(until(BLOCKING, lambda: self.losses))
        assert [key for key, _ in self.losses] == [lease_key]
        for lease in self.leases:
            lease.release()
        for waiter in self.waiters:
            waiter.join(PATIENCE)
        assert sorted(self.entered) == list(range(5))
        assert not direct.exists(*[lease.key for lease in self.leases])


@contextlib.contextmanager
def unaffected(server, name, **options):
    """Check that what happens in the block, which receives them, does not affect other leases."""
    others = OtherLeases(server, name, **options)
    yield others
    time.sleep(OBSERVED)
    others.assert_unaffected()


def _halve(frail, proxy):
    proxy.halves = True


def _hang(frail, proxy):
    frail.pause()


def _black_hole(frail, proxy):
    proxy.black_hole = True


def _refuse(frail, proxy):
    frail.kill()


def _reset(frail, proxy):
    proxy.drop_reply(lambda command: True, times=1_000_000)


def _reply(text):
    def fault(frail, proxy):
        proxy.says = text

    return fault


FAULTS = {
    "half a reply": _halve,
    "hangs": _hang,
    "silent": _black_hole,
    "refuses": _refuse,
    "resets": _reset,
    "LOADING": _reply(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "READONLY": _reply(b"-READONLY You can't write against a read only replica.\r\n"),
    "garbage": _reply(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "another reply": _reply(b"$3\r\nabc\r\n"),
    "too much": _reply(b"+OK\r\n" * 1000),
    "endless": _reply(b"*1000000000\r\n"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faulty_server_affects_no_lease_at_another(server, frail, name, fault):
    with FaultProxy(frail.host, frail.port) as proxy:
        losses, client = [], proxy.client()
        lock = RedisLock(
            name, client=client, expire=EXPIRE, on_lost=lambda lease, why: losses.append(why)
        )
        held = lock.acquire()
        waiter = threading.Thread(target=_wait_without_success, args=(proxy, name))
        waiter.start()
        time.sleep(EXPIRE / 2)  # it is renewed once, and its waiter subscribes
        with unaffected(server, name):
            fault(frail, proxy)
            BLOCKING.run(until(BLOCKING, lambda: losses))
        assert held.lost
        proxy.black_hole = True
        waiter.join(PATIENCE)
        if fault is _hang:
            frail.resume()


def _wait_without_success(proxy, name):
    lock = RedisLock(name, client=proxy.client(), expire=EXPIRE, acquire_time=3 * EXPIRE)
    with contextlib.suppress(redis.RedisError, LockError), lock:
        pass


@pytest.mark.parametrize("value", [b"\xff\xfe", b"", b"another", "a list"], ids=repr)
def test_value_of_one_key_affects_no_other_lease(server, direct, name, value):
    with unaffected(server, name) as others:
        for client in others.clients:
            losses = []
            lock = RedisLock(
                f"{name}:faulty",
                client=client,
                expire=2 * EXPIRE,
                on_lost=lambda lease, why, losses=losses: losses.append(why),
            )
            lease = lock.acquire()
            direct.delete(lease.key)
            if value == "a list":
                direct.rpush(lease.key, "other data")
            else:
                direct.set(lease.key, value)
            BLOCKING.run(until(BLOCKING, lambda losses=losses: losses))
            assert lease.lost
            direct.delete(lease.key)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_error_of_one_on_lost_affects_no_other_lease(server, direct, name, error, caplog):
    called = threading.Event()

    def fail(lease, why):
        called.set()
        raise error("on purpose")

    with unaffected(server, name) as others:
        lease = others.lock("faulty", on_lost=fail).acquire()
        direct.delete(lease.key)
        assert called.wait(PATIENCE)
    caplog.clear()  # the traceback refers to the clients of the test


def test_name_that_cannot_be_encoded_affects_no_other_lease(server, name):
    with unaffected(server, name) as others, pytest.raises(LockError):
        others.lock("\ud800").acquire()
