"""The scripts in Python do what the scripts do in a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from model.scripts import Memory, Scripts

from redis_lock_decorators import _lua
from redis_lock_decorators.testing import LocalServer

LEASE, KEYS = 60_000, ("lock", "queue", "waiters", "released")
#: Keys of a second lock, for requests about several.
OTHER = ("lock2", "queue2", "waiters2", "released2")
#: The verbs that also ask for the last of these keys.
NOTING = ("release", "min_hold")
WAITERS, CHANNELS = st.sampled_from("abc"), st.sampled_from(["one", "two"])
RELEASERS = st.sampled_from(["a", "b", "x"])
GRANTS = st.sampled_from([20_000, 30_000])
PLACES = st.builds("{}|{}|{}".format, CHANNELS, WAITERS, GRANTS)
ENQUEUES = st.tuples(
    *(st.just("enqueue"), WAITERS, st.just(LEASE), CHANNELS, GRANTS, st.integers(0, 3)),
    st.one_of(st.just(""), PLACES),
)
#: What somebody may write into a queue, or as who was handed the lock, by hand.
ODD_PLACES = ["", "x", "|", "||", "one||20000", "|a|20000", "one|a|", "one|a|0", "one|a|-5"]
ODD_PLACES += ["a|b|c", "one|a|20000|", "one|a|999999999999999999999", "one|a|1e3", "one|b|1\n"]
ODD = st.sampled_from(ODD_PLACES)
LAPSES = st.tuples(st.just("expire"))
POKES = st.one_of(
    st.tuples(st.just("recheck"), CHANNELS, PLACES, PLACES), st.tuples(st.just("recheck"), CHANNELS)
)
STEPS = st.one_of(
    *(ENQUEUES, ENQUEUES, ENQUEUES, LAPSES, LAPSES, POKES, POKES),
    st.tuples(st.just("cancel"), WAITERS, st.one_of(PLACES, st.just(""))),
    st.tuples(st.just("enter"), WAITERS, st.sampled_from([0, LEASE]), PLACES),
    st.tuples(st.just("release"), WAITERS),
    st.tuples(st.just("force"), WAITERS),
    st.tuples(st.just("min_hold"), WAITERS, st.just(LEASE)),
    st.tuples(st.just("release"), WAITERS, RELEASERS),
    st.tuples(st.just("release"), WAITERS, RELEASERS, st.just(1)),
    st.tuples(st.just("min_hold"), WAITERS, st.just(LEASE), RELEASERS, st.just(1)),
    st.tuples(st.just("spy"), CHANNELS),
    st.tuples(st.just("release both"), WAITERS),
    st.tuples(st.just("set"), WAITERS),
    st.tuples(st.just("deafen"), CHANNELS),
    st.tuples(st.just("write"), ODD, st.sampled_from([0, 2])),
    st.tuples(st.just("note"), ODD),
)


LAPSE, POKE = ("expire",), ("recheck", "x", "one|b|20000", "two|c|20000")


def lines_up(identifier: str, channel: str) -> tuple[Any, ...]:
    return ("enqueue", identifier, LEASE, channel, 20_000, 0, "")


#: Two grants lapse, so that both processes are suspects in the end, and come again or leave.
LAPSED = [
    *(lines_up("a", "one"), lines_up("b", "one"), lines_up("c", "two")),
    *(lines_up("a", "two"), lines_up("d", "one"), LAPSE, POKE, LAPSE, POKE),
]


class RealServer:
    """A server that listeners hear, one a channel."""

    def __init__(self, server: LocalServer) -> None:
        self.client = server.client(decode_responses=True)
        self.server = server
        self.lines: dict[str, Any] = {}
        self.spies: dict[str, Any] = {}
        self.run_id = self.client.info("server")["run_id"]

    def begin(self) -> None:
        self.client.flushall()
        for channel in ("one", "two"):
            if channel not in self.lines:
                self.lines[channel] = line = self.server.client(decode_responses=True).pubsub()
                line.subscribe(channel)
                assert line.get_message(timeout=20)["type"] == "subscribe"
        while self.spies:
            self.spies.popitem()[1].close()
        while self.client.pubsub_numpat():
            pass
        self.published()

    def spy(self, channel: str) -> None:
        """Have somebody listen to a pattern that the channel matches."""
        if channel not in self.spies:
            self.spies[channel] = spy = self.server.client().pubsub()
            spy.psubscribe(f"{channel[:2]}*")
            assert spy.get_message(timeout=20)["type"] == "psubscribe"

    def deafen(self, channel: str) -> None:
        if channel in self.lines:
            line = self.lines.pop(channel)
            line.unsubscribe()
            while line.get_message(timeout=20)["type"] != "unsubscribe":
                pass
            line.close()

    def run(self, verb: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        keys = keys if verb in NOTING else keys[: -len(keys) // 4]
        return self.client.eval(_lua.script(verb).text, len(keys), *keys, *arguments)

    def published(self) -> list[tuple[str, str]]:
        """What was heard since the last time, by channel."""
        heard = []
        for channel, line in sorted(self.lines.items()):
            self.client.publish(channel, "end")
            while (message := line.get_message(timeout=20))["data"] != "end":
                heard.append((channel, message["data"]))
        return heard

    def stored(self, keys: tuple[str, ...]) -> Any:
        lock, queue, facts, released = keys
        places = {
            member: int(score)
            for member, score in self.client.zrange(queue, 0, -1, withscores=True)
        }
        noted = set(self.client.zrange(released, 0, -1))
        for companion in (queue, facts, released):
            assert self.client.pttl(companion) != -1, f"{companion} never ends"
            assert self.client.pttl(companion) <= _lua.KEPT
        left = self.client.pttl(lock)
        return (
            self.client.get(lock),
            _rounded(left),
            places,
            self.client.hgetall(facts),
            noted,
        )


@pytest.fixture(scope="module")
def real() -> Iterator[RealServer]:
    with LocalServer() as server:
        yield RealServer(server)


def _rounded(milliseconds: int) -> int:
    """Milliseconds that are left, to ten seconds: those of a busy machine pass meanwhile."""
    return milliseconds if milliseconds < 0 else -(-milliseconds // 10_000)


def _plain(reply: Any) -> Any:
    if isinstance(reply, list) and len(reply) > 2:
        return [*reply[:2], _rounded(reply[2]), *reply[3:]]
    return reply


def _stored(memory: Memory, keys: tuple[str, ...]) -> Any:
    lock, queue, facts, released = keys
    left, noted = _rounded(memory.pttl(lock)), set(memory.queues.get(released, {}))
    places, facts = memory.queues.get(queue, {}), memory.hashes.get(facts, {})
    return memory.get(lock), left, places, facts, noted


def test_grant_that_lapsed_is_known_though_a_stranger_took_the_lock_and_let_it_go(
    real: Any,
) -> None:
    real.begin()
    for step in (lines_up("a", "one"), lines_up("b", "one"), lines_up("c", "one")):
        verb, identifier, *details = step
        real.run(verb, KEYS, identifier, 0, *details)
    real.run("enqueue", KEYS, "d", 0, LEASE, "two", 20_000, 0, "")
    real.run("release", KEYS, "a", 0)
    assert real.client.get("lock") == "b"

    real.client.delete("lock")
    real.client.set("lock", "stranger", px=LEASE)
    real.run("release", KEYS, "stranger", 0)

    assert real.client.get("lock") == "d"
    assert real.client.hgetall("waiters") == {
        "suspect:one": "1",
        "granted": "two|d|20000",
    }
    assert real.client.zrange("released", 0, -1) == ["a", "stranger"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_release_is_noted_though_the_clock_was_set_back(real: Any, is_awaited: bool) -> None:
    memory = Memory()
    scripts, most = Scripts(memory), _lua.MOST_NOTED
    real.begin()
    memory.hearers, memory.number = {"one"}, real.run_id
    seconds, _ = real.client.time()
    notes = {f"note {number:04}": seconds * 1000 + 60_000 + number // 3 for number in range(most)}
    real.client.zadd("released", notes)
    real.client.pexpire("released", _lua.KEPT)
    memory.queues["released"] = dict(notes)
    for serial in range(5):
        for stored in (memory, real.client):
            stored.delete("queue")
        if is_awaited:
            memory.zadd("queue", 1, "one|x|20000")
            real.client.zadd("queue", {"one|x|20000": 1})
            real.client.pexpire("queue", _lua.KEPT)
        memory.set("lock", "a", LEASE)
        real.client.set("lock", "a", px=LEASE)

        scripts.release("a:1", KEYS, "a", f"release {9 - serial}")
        real.run("release", KEYS, "a", 1, f"release {9 - serial}")

        assert real.stored(KEYS) == _stored(memory, KEYS)
        assert real.client.zcard("released") == most
        assert real.client.zrange("released", -1, -1) == [f"release {9 - serial}"]


@pytest.mark.parametrize("verb", ["release", "min_hold"])
def test_key_with_other_data_keeps_no_other_from_being_let_go(real: Any, verb: str) -> None:
    memory = Memory()
    real.begin()
    keys = tuple(sum(zip(KEYS, OTHER, strict=True), ()))
    memory.hset("lock", "other", "data")
    memory.set("lock2", "a", LEASE)
    real.client.rpush("lock", "other data")
    real.client.set("lock2", "a", px=LEASE)
    details = (LEASE,) if verb == "min_hold" else ()

    wanted = getattr(Scripts(memory), verb)("a:1", keys, "a", *details)

    assert real.run(verb, keys, "a", 1, *details) == wanted == ["a:1", 0]
    assert real.stored(OTHER) == _stored(memory, OTHER)
    assert real.client.lrange("lock", 0, -1) == ["other data"]


@pytest.mark.parametrize("living", [True, False])
def test_very_long_queue_is_gone_through_in_many_calls(real: Any, living: bool) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.hearers, memory.number = {"one", "two"}, real.run_id
    places = {f"dead|{number}|20000": number + 1 for number in range(3 * scripts.most - 50)}
    places["two|x|20000"] = scripts.most + 10
    places["one|y|20000"] = len(places) + 1 if living else 2 * scripts.most
    real.client.zadd("queue", places)
    real.client.hset("waiters", "suspect:two", 1)
    memory.queues["queue"] = dict(places)
    memory.hset("waiters", "suspect:two", "1")

    lengths = []
    for serial in range(4):
        wanted = scripts.recheck(f"one:{serial}", KEYS[:3], "one", "two|x|20000", "one|y|20000")
        reply = real.run("recheck", KEYS, "one", serial, "two|x|20000", "one|y|20000")
        assert _plain(reply) == _plain(wanted)
        assert real.stored(KEYS) == _stored(memory, KEYS)
        lengths.append(len(memory.queues.get("queue", {})))
        assert 0 < real.client.pttl("waiters") <= 600_000
        heard = [one for one in memory.published if one[0] in memory.hearers]
        memory.published.clear()
        assert real.published() == sorted(heard, key=lambda one: one[0])
        assert any(channel == "one" for channel, _ in heard) or serial == 3 or not living

    assert memory.get("lock") == "y"
    # Where nobody is found who would go on at once, it is gone on at once.
    assert lengths[0] == len(places) - (scripts.most if living else 2 * scripts.most + 2)


def test_releaser_before_many_dead_is_not_noted_as_who_was_handed_the_lock(real: Any) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.hearers, memory.number = {"one", "two"}, real.run_id
    places = {f"dead|{number}|20000": number + 1 for number in range(scripts.most_untold + 1)}
    real.client.zadd("queue", places)
    real.client.pexpire("queue", _lua.KEPT)
    memory.queues["queue"] = dict(places)
    for stored in (memory, real.client):
        stored.hset("waiters", "granted", "one|a|20000")
    memory.set("lock", "a", LEASE)
    real.client.set("lock", "a", px=LEASE)

    replies = [scripts.release("a:1", KEYS, "a"), real.run("release", KEYS, "a", 1)]

    assert replies == ["a:1", "a:1"]
    assert real.stored(KEYS) == _stored(memory, KEYS)
    assert real.client.zcard("queue") == 1
    assert real.client.hgetall("waiters") == {}


@pytest.mark.parametrize("odd", ODD_PLACES)
def test_what_is_no_place_is_passed_over_and_taken_out(real: Any, odd: str) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.hearers, memory.number = {"one", "two"}, real.run_id
    for server in (memory, real.client):
        server.hset("waiters", "granted", odd)
    for place, ticket in ((odd, 1), ("two|b|20000", 2)):
        memory.zadd("queue", ticket, place)
        real.client.zadd("queue", {place: ticket})
    real.client.pexpire("queue", _lua.KEPT)
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
@example(steps=[*LAPSED, lines_up("b", "one"), LAPSE, POKE, lines_up("c", "two")])
@example(steps=[*LAPSED, ("cancel", "c", ""), ("set", "e"), ("cancel", "d", "one|d|20000")])
@example(steps=[*LAPSED, LAPSE, POKE, ("release", "a"), ("cancel", "b", "")])
@given(steps=st.lists(STEPS, min_size=8, max_size=25))
def test_scripts_in_python_do_what_a_real_server_does(real: RealServer, steps: Any) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    real.begin()
    memory.hearers, memory.number = {"one", "two"}, real.run_id

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
            real.client.pexpire("queue", _lua.KEPT)
        elif verb == "note":
            memory.hset("waiters", "granted", arguments[0])
            real.client.hset("waiters", "granted", arguments[0])
            real.client.pexpire("waiters", _lua.KEPT)
        elif verb == "spy":
            memory.spies.add(arguments[0])
            real.spy(arguments[0])
        elif verb == "deafen":
            memory.hearers.discard(arguments[0])
            real.deafen(arguments[0])
        else:
            if verb == "release both":
                verb, keys = "release", tuple(sum(zip(KEYS, OTHER, strict=True), ()))
            mark = f"{arguments[0]}:{serial}"
            known = keys if verb in NOTING else keys[:3]
            wanted = getattr(scripts, verb)(mark, known, *arguments)
            identifier, *details = arguments
            reply = real.run(verb, keys, identifier, serial, *details)
            assert _plain(reply) == _plain(wanted)
        for lock in (KEYS, OTHER):
            assert real.stored(lock) == _stored(memory, lock)
        heard = [one for one in memory.published if one[0] in memory.hearers]
        memory.published.clear()
        assert real.published() == sorted(heard, key=lambda one: one[0])
