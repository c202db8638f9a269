"""Who may only publish and hear on the channels takes no lock, deletes no key, deafens nobody."""

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
#: What the hostile users may do, beside publishing and hearing.
RIGHTS = {"pub/sub only": ["-@all"], "may read too": ["-@all", "+@read"]}
#: Identifiers and keys that a word might name.
VALUES = [(b"active", b"session"), (b"\xff", b"y"), (b"", b""), (b"a" * 40, b"b" * 40)]


class Liar:
    """Hears every channel, and says on each what it heard anywhere, changed, crossed or made up."""

    def __init__(self, server: LocalServer, name: str, rights: list[str]) -> None:
        direct = server.client()
        direct.acl_setuser("liar", enabled=True, nopass=True, reset=True)
        keys = ["~*"] if "+@read" in rights else ["resetkeys"]
        own = ["+publish", "+psubscribe", "+client|setinfo", "+ping"]
        direct.execute_command("ACL", "SETUSER", "liar", *keys, f"&{CHANNELS}", *rights, *own)
        self._client = server.client(username="liar", password="any")  # noqa: S106  # nopass
        self._reads = "+@read" in rights
        self._name = name
        self._heard: dict[bytes, None] = {}
        self._own: set[bytes] = set()
        self._channels: dict[bytes, None] = {}
        self._identifiers: dict[bytes, None] = {}
        self.said = 0
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._lie)
        self._direct = direct

    def __enter__(self) -> Liar:
        self._spy = self._client.pubsub()
        self._spy.psubscribe(CHANNELS)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.ended.set()
        self._thread.join()
        self._spy.close()
        self._client.close()
        self._direct.acl_deluser("liar")
        self._direct.close()

    def heard(self) -> bytes:
        """All that was said by others."""
        return b" ".join([word for word in self._heard if word not in self._own])

    def _lie(self) -> None:
        while not self.ended.is_set():
            self._hear()
            for word, channel in itertools.product(list(self._words()), list(self._channels)):
                self._own.add(word)
                self._client.publish(channel, word)
                self.said += 1

    def _hear(self) -> None:
        while message := self._spy.get_message(timeout=0.001):
            if message["type"] == "pmessage":
                self._channels[message["channel"]] = None
                self._heard.setdefault(message["data"])
                if len(self._heard) > 30:
                    self._heard.pop(next(iter(self._heard)))
        if self._reads:
            for place in self._client.zrange(queue_of(self._name), 0, 20):
                channel, identifier, _ = place.split(b"|")
                self._channels[channel] = None
                self._identifiers[identifier] = None
            holder = self._client.get(f"sys:lock:{self._name}")
            if holder:
                self._identifiers[holder] = None

    def _words(self) -> Iterator[bytes]:
        for word in self._heard:
            yield word
            yield word.replace(b"again", b"turn") + b"|" + b"0" * 40
            yield word[:-1]
            yield word.replace(b"turn", b"again").rpartition(b"|")[0]
        for one, other in VALUES:
            yield b"turn|%b|%b" % (one, other)
        for identifier in list(self._identifiers)[-10:]:
            digest = messages.hint(identifier.decode())
            yield b"turn|%b|" % digest
            yield b"turn|%b|%b" % (digest, digest)
            yield b"turn|%b|sys:lock:%b" % (identifier, self._name.encode())
            yield b"again|%b" % digest


@pytest.fixture(params=RIGHTS.values(), ids=RIGHTS)
def liar(request: Any, frail: Any, name: str) -> Iterator[Liar]:
    with Liar(frail, name, request.param) as liar:
        yield liar


async def test_one_holds_at_a_time_and_no_other_key_is_touched(front, frail, liar, name):
    looking = frail.client()
    looking.set("session", "active")
    clients = [front.client(frail), front.client(frail)]  # each with a channel of its own
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
        await queued(front, looking, name, 6)
        before = liar.said
        end = time.monotonic() + 1.0
        while time.monotonic() < end or liar.said < before + 100:
            seen.append((lease.lost, await do(lease.owned())))
            assert not inside
            await front.sleep(0.02)
        await do(lease.release())

    results = await front.elsewhere(*[enter(lock) for lock in locks * 3], hold)

    assert results == [None] * 7
    assert entered == [1] * 6
    assert set(seen) == {(False, True)}
    assert looking.get("session") == b"active"
    await until(front, lambda: lasting(looking, "*") == [b"session"])
    looking.close()


async def test_words_tell_nobody_an_identifier_or_a_key(front, frail, liar, name):
    looking = frail.client()
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    lease, identifiers = await do(lock.acquire()), []

    async def release_keys():
        await queued(front, looking, name, 4)
        places = looking.zrange(queue_of(name), 0, -1)
        identifiers.extend(place.split(b"|")[1] for place in places)
        await front.sleep(0.2)
        await do(lease.release())

    await entered_while(front, lock, release_keys, 4, hold=0.02)

    heard = liar.heard()
    assert identifiers
    assert not any(identifier.rstrip(b"~") in heard for identifier in identifiers)
    looking.close()


async def test_those_who_wait_are_told_as_before(front, frail, liar, name):
    looking = frail.client()
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    released = []
    for _ in range(3):
        lease = await do(lock.acquire(PATIENCE))

        async def release_keys(lease=lease):
            await queued(front, looking, name, 4)
            await front.sleep(0.3)
            assert looking.pubsub_channels(CHANNELS) != []
            released.append(time.monotonic())
            await do(lease.release())

        times = await entered_while(front, lock, release_keys, 4, hold=0.01)
        assert times[-1] - released[-1] < PATIENCE / 2
    assert isinstance(looking, redis.Redis)
    looking.close()
