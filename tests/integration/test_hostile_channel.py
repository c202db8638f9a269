"""Users who may only publish and subscribe cannot acquire locks, delete keys or stop waiters."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.fronts import do
from support.leftovers import PATIENCE, TIDY_FRONTS, lasting, until
from support.queues import entered_while, queue_of, queued

from redis_lock_decorators._rules import messages
from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS
CHANNELS = "redis-lock:*"
#: The permissions of hostile users, in addition to publishing and subscribing.
RIGHTS = {"pub/sub only": ["-@all"], "pub/sub and read": ["-@all", "+@read"]}
#: Identifiers and keys that a message might name.
VALUES = [(b"active", b"session"), (b"\xff", b"y"), (b"", b""), (b"a" * 40, b"b" * 40)]


class HostileUser:
    """Subscribes to all channels and publishes received, changed and invented messages on each."""

    def __init__(self, server: LocalServer, name: str, rights: list[str]) -> None:
        direct = server.client()
        direct.acl_setuser("hostile", enabled=True, nopass=True, reset=True)
        keys = ["~*"] if "+@read" in rights else ["resetkeys"]
        own = ["+publish", "+psubscribe", "+client|setinfo", "+ping"]
        direct.execute_command("ACL", "SETUSER", "hostile", *keys, f"&{CHANNELS}", *rights, *own)
        self._client = server.client(username="hostile", password="any")  # noqa: S106  # nopass
        self._reads = "+@read" in rights
        self._name = name
        self._received: dict[bytes, None] = {}
        self._own: set[bytes] = set()
        self._channels: dict[bytes, None] = {}
        self._identifiers: dict[bytes, None] = {}
        self.sent = 0
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._attack)
        self._direct = direct

    def __enter__(self) -> HostileUser:
        self._pubsub = self._client.pubsub()
        self._pubsub.psubscribe(CHANNELS)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.ended.set()
        self._thread.join()
        self._pubsub.close()
        self._client.close()
        self._direct.acl_deluser("hostile")
        self._direct.close()

    def received(self) -> bytes:
        """All messages that others published."""
        return b" ".join([message for message in self._received if message not in self._own])

    def _attack(self) -> None:
        while not self.ended.is_set():
            self._receive()
            for message, channel in itertools.product(list(self._messages()), list(self._channels)):
                self._own.add(message)
                self._client.publish(channel, message)
                self.sent += 1

    def _receive(self) -> None:
        while message := self._pubsub.get_message(timeout=0.001):
            if message["type"] == "pmessage":
                self._channels[message["channel"]] = None
                self._received.setdefault(message["data"])
                if len(self._received) > 30:
                    self._received.pop(next(iter(self._received)))
        if self._reads:
            for entry in self._client.zrange(queue_of(self._name), 0, 20):
                channel, identifier, _ = entry.split(b"|")
                self._channels[channel] = None
                self._identifiers[identifier] = None
            holder = self._client.get(f"sys:lock:{self._name}")
            if holder:
                self._identifiers[holder] = None

    def _messages(self) -> Iterator[bytes]:
        for message in self._received:
            yield message
            yield message.replace(b"again", b"turn") + b"|" + b"0" * 40
            yield message[:-1]
            yield message.replace(b"turn", b"again").rpartition(b"|")[0]
        for one, other in VALUES:
            yield b"turn|%b|%b" % (one, other)
        for identifier in list(self._identifiers)[-10:]:
            digest = messages.hint(identifier.decode())
            yield b"turn|%b|" % digest
            yield b"turn|%b|%b" % (digest, digest)
            yield b"turn|%b|sys:lock:%b" % (identifier, self._name.encode())
            yield b"again|%b" % digest


@pytest.fixture(params=RIGHTS.values(), ids=RIGHTS)
def hostile(request: Any, frail: Any, name: str) -> Iterator[HostileUser]:
    with HostileUser(frail, name, request.param) as hostile:
        yield hostile


async def test_hostile_messages_break_no_exclusion_and_touch_no_key(front, frail, hostile, name):
    direct = frail.client()
    direct.set("session", "active")
    clients = [front.client(frail), front.client(frail)]  # each with its own channel
    locks = [front.package.RedisLock(name, client=client, expire=30) for client in clients]
    lease = await do(locks[0].acquire())
    seen, inside, entered = [], [], []

    def enter(lock):
        async def work():
            own = await do(lock.acquire(PATIENCE))
            inside.append(own)
            entered.append(len(inside))
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                seen.append((own.lost, await do(own.owned())))
                await front.sleep(0.01)
            inside.remove(own)
            await do(own.release())

        return work

    async def hold():
        await queued(front, direct, name, 6)
        before = hostile.sent
        end = time.monotonic() + 1.0
        while time.monotonic() < end or hostile.sent < before + 100:
            seen.append((lease.lost, await do(lease.owned())))
            assert not inside
            await front.sleep(0.02)
        await do(lease.release())

    results = await front.elsewhere(*[enter(lock) for lock in locks * 3], hold)

    assert results == [None] * 7
    assert entered == [1] * 6
    assert set(seen) == {(False, True)}
    assert direct.get("session") == b"active"
    await until(front, lambda: lasting(direct, "*") == [b"session"])
    direct.close()


async def test_messages_contain_no_identifier(front, frail, hostile, name):
    direct = frail.client()
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    lease, identifiers = await do(lock.acquire()), []

    async def release_keys():
        await queued(front, direct, name, 4)
        entries = direct.zrange(queue_of(name), 0, -1)
        identifiers.extend(entry.split(b"|")[1] for entry in entries)
        await front.sleep(0.2)
        await do(lease.release())

    await entered_while(front, lock, release_keys, 4, hold=0.02)

    received = hostile.received()
    assert identifiers
    assert not any(identifier.rstrip(b"~") in received for identifier in identifiers)
    direct.close()


async def test_waiters_are_notified_despite_hostile_messages(front, frail, hostile, name):
    direct = frail.client()
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    released = []
    for _ in range(3):
        lease = await do(lock.acquire(PATIENCE))

        async def release_keys(lease=lease):
            await queued(front, direct, name, 4)
            await front.sleep(0.3)
            assert direct.pubsub_channels(CHANNELS) != []
            released.append(time.monotonic())
            await do(lease.release())

        times = await entered_while(front, lock, release_keys, 4, hold=0.01)
        assert times[-1] - released[-1] < PATIENCE / 2
    assert isinstance(direct, redis.Redis)
    direct.close()
