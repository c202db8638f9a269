"""The scripts in Python do the same as the Lua scripts in a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from model.memory import Memory

from redis_lock_decorators import _lua
from redis_lock_decorators.testing import LocalServer
from redis_lock_decorators.testing.fake.scripts import Scripts

LEASE, KEYS = 60_000, ("lock", "queue", "waiters", "released")
#: Keys of a second lock, for requests about several.
OTHER_KEYS = ("lock2", "queue2", "waiters2", "released2")
#: The verbs that also use the last of these keys.
NOTING = ("release", "min_hold")
WAITERS, CHANNELS = st.sampled_from("abc"), st.sampled_from(["one", "two"])
RELEASERS = st.sampled_from(["a", "b", "x"])
RECORDED = st.sampled_from(["always", "shared", "unless other", "if own"])
GRANTS = st.sampled_from([20_000, 30_000])
ENTRIES = st.builds("{}|{}|{}".format, CHANNELS, WAITERS, GRANTS)
ENQUEUES = st.tuples(
    *(st.just("enqueue"), WAITERS, st.just(LEASE), CHANNELS, GRANTS, st.integers(0, 3)),
    st.one_of(st.just(""), ENTRIES),
)
#: Malformed entries that may be written by hand, into a queue or as "granted".
ODD_ENTRIES = ["", "x", "|", "||", "one||20000", "|a|20000", "one|a|", "one|a|0", "one|a|-5"]
ODD_ENTRIES += ["a|b|c", "one|a|20000|", "one|a|999999999999999999999", "one|a|1e3", "one|b|1\n"]
ODD = st.sampled_from(ODD_ENTRIES)
EXPIRIES = st.tuples(st.just("expire"))
RECHECKS = st.one_of(
    st.tuples(st.just("recheck"), CHANNELS, ENTRIES, ENTRIES),
    st.tuples(st.just("recheck"), CHANNELS),
)
STEPS = st.one_of(
    *(ENQUEUES, ENQUEUES, ENQUEUES, EXPIRIES, EXPIRIES, RECHECKS, RECHECKS),
    st.tuples(st.just("cancel"), WAITERS, st.one_of(ENTRIES, st.just(""))),
    st.tuples(st.just("enter"), WAITERS, st.sampled_from([0, LEASE]), ENTRIES),
    st.tuples(st.just("release"), WAITERS),
    st.tuples(st.just("force"), WAITERS),
    st.tuples(st.just("min_hold"), WAITERS, st.just(LEASE)),
    st.tuples(st.just("release"), WAITERS, RELEASERS),
    st.tuples(st.just("release"), WAITERS, RELEASERS, RECORDED),
    st.tuples(st.just("min_hold"), WAITERS, st.just(LEASE), RELEASERS, RECORDED),
    st.tuples(st.just("pattern"), CHANNELS),
    st.tuples(st.just("release both"), WAITERS),
    st.tuples(st.just("set"), WAITERS),
    st.tuples(st.just("unsubscribe"), CHANNELS),
    st.tuples(st.just("write"), ODD, st.sampled_from([0, 2])),
    st.tuples(st.just("note"), ODD),
)


EXPIRE, RECHECK = ("expire",), ("recheck", "x", "one|b|20000", "two|c|20000")


def joins(identifier: str, channel: str) -> tuple[Any, ...]:
    return ("enqueue", identifier, LEASE, channel, 20_000, 0, "")


#: Two grants expire, so that both processes are suspects; then each joins again or leaves.
EXPIRED_GRANTS = [
    *(joins("a", "one"), joins("b", "one"), joins("c", "two")),
    *(joins("a", "two"), joins("d", "one"), EXPIRE, RECHECK, EXPIRE, RECHECK),
]


class RealServer:
    """A server with one subscriber per channel."""

    def __init__(self, server: LocalServer) -> None:
        self.client = server.client(decode_responses=True)
        self.server = server
        self.subscriptions: dict[str, Any] = {}
        self.patterns: dict[str, Any] = {}
        self.run_id = self.client.info("server")["run_id"]

    def begin(self) -> None:
        self.client.flushall()
        for channel in ("one", "two"):
            if channel not in self.subscriptions:
                self.subscriptions[channel] = subscription = self.server.client(
                    decode_responses=True
                ).pubsub()
                subscription.subscribe(channel)
                assert subscription.get_message(timeout=20)["type"] == "subscribe"
        while self.patterns:
            self.patterns.popitem()[1].close()
        while self.client.pubsub_numpat():
            pass
        self.published()

    def pattern(self, channel: str) -> None:
        """Subscribe a client to a pattern that the channel matches."""
        if channel not in self.patterns:
            self.patterns[channel] = pattern = self.server.client().pubsub()
            pattern.psubscribe(f"{channel[:2]}*")
            assert pattern.get_message(timeout=20)["type"] == "psubscribe"

    def unsubscribe(self, channel: str) -> None:
        if channel in self.subscriptions:
            subscription = self.subscriptions.pop(channel)
            subscription.unsubscribe()
            while subscription.get_message(timeout=20)["type"] != "unsubscribe":
                pass
            subscription.close()

    def run(self, verb: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        keys = keys if verb in NOTING else keys[: -len(keys) // 4]
        return self.client.eval(_lua.script(verb).text, len(keys), *keys, *arguments)

    def published(self) -> list[tuple[str, str]]:
        """The messages received since the last call, by channel."""
        received = []
        for channel, subscription in sorted(self.subscriptions.items()):
            self.client.publish(channel, "end")
            while (message := subscription.get_message(timeout=20))["data"] != "end":
                received.append((channel, message["data"]))
        return received

    def stored(self, keys: tuple[str, ...]) -> Any:
        lock, queue, waiters, released = keys
        entries = {
            member: int(score)
            for member, score in self.client.zrange(queue, 0, -1, withscores=True)
        }
        noted = set(self.client.zrange(released, 0, -1))
        for companion in (queue, waiters, released):
            assert self.client.pttl(companion) != -1, f"{companion} never ends"
            assert self.client.pttl(companion) <= _lua.COMPANION_TTL
        left = self.client.pttl(lock)
        return (
            self.client.get(lock),
            _rounded(left),
            entries,
            self.client.hgetall(waiters),
            noted,
        )


@pytest.fixture(scope="module")
def real() -> Iterator[RealServer]:
    with LocalServer() as server:
        yield RealServer(server)


def _rounded(milliseconds: int) -> int:
    """Milliseconds rounded up to ten seconds, as some pass during the test."""
    return milliseconds if milliseconds < 0 else -(-milliseconds // 10_000)


def _plain(reply: Any) -> Any:
    if isinstance(reply, list) and len(reply) > 2:
        return [*reply[:2], _rounded(reply[2]), *reply[3:]]
    return reply


def _stored(memory: Memory, keys: tuple[str, ...]) -> Any:
    lock, queue, waiters, released = keys
    left, noted = _rounded(memory.pttl(lock)), set(memory.queues.get(released, {}))
    entries, waiters = memory.queues.get(queue, {}), memory.hashes.get(waiters, {})
    return memory.get(lock), left, entries, waiters, noted


def test_expired_grant_is_detected_though_an_external_holder_released_the_lock_since(
    real: Any,
) -> None:
    real.begin()
    for step in (joins("a", "one"), joins("b", "one"), joins("c", "one")):
        verb, identifier, *details = step
        real.run(verb, KEYS, identifier, 0, *details)
    real.run("enqueue", KEYS, "d", 0, LEASE, "two", 20_000, 0, "")
    real.run("release", KEYS, "a", 0)
    assert real.client.get("lock") == "b"

    real.client.delete("lock")
    real.client.set("lock", "external", px=LEASE)
    real.run("release", KEYS, "external", 0)

    assert real.client.get("lock") == "d"
    assert real.client.hgetall("waiters") == {
        "suspect:one": "1",
        "granted": "two|d|20000",
    }
    assert real.client.zrange("released", 0, -1) == ["a", "external"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_release_is_recorded_though_the_clock_was_set_back(real: Any, is_awaited: bool) -> None:
    memory = Memory()
    scripts, most = Scripts(memory), _lua.MOST_RECORDS
    real.begin()
    memory.subscribed, memory.number = {"one"}, real.run_id
    seconds, _ = real.client.time()
    notes = {f"note {number:04}": seconds * 1000 + 60_000 + number // 3 for number in range(most)}
    real.client.zadd("released", notes)
    real.client.pexpire("released", _lua.COMPANION_TTL)
    memory.queues["released"] = dict(notes)
    for serial in range(5):
        for stored in (memory, real.client):
            stored.delete("queue")
        if is_awaited:
            memory.zadd("queue", 1, "one|x|20000")
            real.client.zadd("queue", {"one|x|20000": 1})
            real.client.pexpire("queue", _lua.COMPANION_TTL)
        memory.set("lock", "a", LEASE)
        real.client.set("lock", "a", px=LEASE)

        scripts.release("a:1", KEYS, "a", f"release {9 - serial}")
        real.run("release", KEYS, "a", 1, f"release {9 - serial}")

        assert real.stored(KEYS) == _stored(memory, KEYS)
        assert real.client.zcard("released") == most
        assert real.client.zrange("released", -1, -1) == [f"release {9 - serial}"]


@pytest.mark.parametrize("verb", ["release", "min_hold"])
def test_key_with_other_data_does_not_prevent_the_release_of_others(real: Any, verb: str) -> None:
    memory = Memory()
    real.begin()
    keys = tuple(sum(zip(KEYS, OTHER_KEYS, strict=True), ()))
    memory.hset("lock", "other", "data")
    memory.set("lock2", "a", LEASE)
    real.client.rpush("lock", "other data")
    real.client.set("lock2", "a", px=LEASE)
    details = (LEASE,) if verb == "min_hold" else ()

    wanted = getattr(Scripts(memory), verb)("a:1", keys, "a", *details)

    assert real.run(verb, keys, "a", 1, *details) == wanted == ["a:1", 0, 0]
    assert real.stored(OTHER_KEYS) == _stored(memory, OTHER_KEYS)
    assert real.client.lrange("lock", 0, -1) == ["other data"]


@pytest.mark.parametrize("living", [True, False])
def test_very_long_queue_is_processed_in_several_calls(real: Any, living: bool) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.subscribed, memory.number = {"one", "two"}, real.run_id
    entries = {f"dead|{number}|20000": number + 1 for number in range(3 * scripts.most - 50)}
    entries["two|x|20000"] = scripts.most + 10
    entries["one|y|20000"] = len(entries) + 1 if living else 2 * scripts.most
    real.client.zadd("queue", entries)
    real.client.hset("waiters", "suspect:two", 1)
    memory.queues["queue"] = dict(entries)
    memory.hset("waiters", "suspect:two", "1")

    lengths = []
    for serial in range(4):
        wanted = scripts.recheck(f"one:{serial}", KEYS[:3], "one", "two|x|20000", "one|y|20000")
        reply = real.run("recheck", KEYS, "one", serial, "two|x|20000", "one|y|20000")
        assert _plain(reply) == _plain(wanted)
        assert real.stored(KEYS) == _stored(memory, KEYS)
        lengths.append(len(memory.queues.get("queue", {})))
        assert 0 < real.client.pttl("waiters") <= 600_000
        received = [one for one in memory.published if one[0] in memory.subscribed]
        memory.published.clear()
        assert real.published() == sorted(received, key=lambda one: one[0])
        assert any(channel == "one" for channel, _ in received) or serial == 3 or not living

    assert memory.get("lock") == "y"
    # If no waiter is found that would continue immediately, the same call continues.
    assert lengths[0] == len(entries) - (scripts.most if living else 2 * scripts.most + 2)


def test_grant_of_a_releaser_before_many_dead_entries_is_cleared(real: Any) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.subscribed, memory.number = {"one", "two"}, real.run_id
    entries = {f"dead|{number}|20000": number + 1 for number in range(scripts.most_unreached + 1)}
    real.client.zadd("queue", entries)
    real.client.pexpire("queue", _lua.COMPANION_TTL)
    memory.queues["queue"] = dict(entries)
    for stored in (memory, real.client):
        stored.hset("waiters", "granted", "one|a|20000")
    memory.set("lock", "a", LEASE)
    real.client.set("lock", "a", px=LEASE)

    replies = [scripts.release("a:1", KEYS, "a"), real.run("release", KEYS, "a", 1)]

    assert replies == ["a:1", "a:1"]
    assert real.stored(KEYS) == _stored(memory, KEYS)
    assert real.client.zcard("queue") == 1
    assert real.client.hgetall("waiters") == {}


@pytest.mark.parametrize("odd", ODD_ENTRIES)
def test_malformed_entry_is_skipped_and_removed(real: Any, odd: str) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.subscribed, memory.number = {"one", "two"}, real.run_id
    for server in (memory, real.client):
        server.hset("waiters", "granted", odd)
    for entry, ticket in ((odd, 1), ("two|b|20000", 2)):
        memory.zadd("queue", ticket, entry)
        real.client.zadd("queue", {entry: ticket})
    real.client.pexpire("queue", _lua.COMPANION_TTL)
    memory.set("lock", "a", LEASE)
    real.client.set("lock", "a", px=LEASE)

    replies = [scripts.release("a:1", KEYS, "a"), real.run("release", KEYS, "a", 1)]

    assert replies == ["a:1", "a:1"]
    assert real.stored(KEYS) == _stored(memory, KEYS)
    assert real.client.get("lock") == "b"
    assert real.client.hget("waiters", "granted") == "two|b|20000"
    assert real.client.zcard("queue") == 0


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(steps=[*EXPIRED_GRANTS, joins("b", "one"), EXPIRE, RECHECK, joins("c", "two")])
@example(steps=[*EXPIRED_GRANTS, ("cancel", "c", ""), ("set", "e"), ("cancel", "d", "one|d|20000")])
@example(steps=[*EXPIRED_GRANTS, EXPIRE, RECHECK, ("release", "a"), ("cancel", "b", "")])
@given(steps=st.lists(STEPS, min_size=8, max_size=25))
def test_python_scripts_do_the_same_as_a_real_server(real: RealServer, steps: Any) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.subscribed, memory.number = {"one", "two"}, real.run_id

    for serial, (verb, *arguments) in enumerate(steps):
        mark, keys = None, KEYS
        if verb == "expire":
            memory.delete("lock")
            real.client.delete("lock")
        elif verb == "set":
            memory.set("lock", arguments[0], LEASE)
            memory.set("lock2", arguments[0], LEASE)
            real.client.set("lock", arguments[0], px=LEASE)
            real.client.set("lock2", arguments[0], px=LEASE)
        elif verb == "write":
            memory.zadd("queue", arguments[1], arguments[0])
            real.client.zadd("queue", {arguments[0]: arguments[1]})
            real.client.pexpire("queue", _lua.COMPANION_TTL)
        elif verb == "note":
            memory.hset("waiters", "granted", arguments[0])
            real.client.hset("waiters", "granted", arguments[0])
            real.client.pexpire("waiters", _lua.COMPANION_TTL)
        elif verb == "pattern":
            memory.patterns.add(arguments[0])
            real.pattern(arguments[0])
        elif verb == "unsubscribe":
            memory.subscribed.discard(arguments[0])
            real.unsubscribe(arguments[0])
        else:
            if verb == "release both":
                verb, keys = "release", tuple(sum(zip(KEYS, OTHER_KEYS, strict=True), ()))
            mark = f"{arguments[0]}:{serial}"
            known = keys if verb in NOTING else keys[:3]
            wanted = getattr(scripts, verb)(mark, known, *arguments)
            identifier, *details = arguments
            reply = real.run(verb, keys, identifier, serial, *details)
            assert reply == wanted if verb in NOTING else _plain(reply) == _plain(wanted)
        for lock in (KEYS, OTHER_KEYS):
            assert real.stored(lock) == _stored(memory, lock)
        received = [one for one in memory.published if one[0] in memory.subscribed]
        memory.published.clear()
        assert real.published() == sorted(received, key=lambda one: one[0])
