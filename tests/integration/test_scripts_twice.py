"""What scripts write in a real server, and what repeated requests do not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redis_lock_decorators import _lua
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators.testing import LocalServer

MINE = "mine"


class Server:
    def __init__(self, server: LocalServer) -> None:
        self.client = server.client(decode_responses=True)

    def run(self, verb: str, *arguments: Any) -> Any:
        return self.client.eval(_lua.script(verb).text, 1, "lock", MINE, 1, *arguments)

    def written(self) -> int:
        """The number of writes that replicas would receive."""
        return int(self.client.info("persistence")["rdb_changes_since_last_save"])


@pytest.fixture(scope="module")
def local() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def real(local: LocalServer) -> Server:
    real = Server(local)
    real.client.flushall()
    return real


@pytest.mark.parametrize("lease", [1_000, 60_000, 600_000])
@pytest.mark.parametrize("left", [60_000, None])
def test_every_acquisition_that_holds_a_key_writes_it(
    real: Server, lease: int, left: int | None
) -> None:
    real.client.set("lock", MINE, px=left)
    before = real.written()

    real.run("acquire", lease)

    assert real.written() > before
    if left is None:
        assert real.client.pttl("lock") == -1
    else:
        assert real.client.pttl("lock") > max(left, lease) - 5_000


def test_acquire_returns_the_time_on_request(real: Server) -> None:
    seconds, _ = real.client.time()

    mark, taken = real.run("acquire", 60_000, 1)
    real.client.set("lock", "another", px=30_000)
    again, holder, left, refused = real.run("acquire", 60_000, 1)

    assert (mark, again, holder) == ("mine:1", "mine:1", "another")
    assert 29_000 < left <= 30_000
    assert seconds <= int(taken) / 1000 <= int(refused) / 1000 < seconds + 60


def test_end_of_a_lease_is_exact_to_the_millisecond(real: Server) -> None:
    real.run("acquire", 60_000)

    found = {real.run("time_left")[1] for _ in range(200)}

    assert len(found) == 1
    real.client.persist("lock")
    assert real.run("time_left")[1:] == ["-1", -1]


@pytest.mark.parametrize("apart", [1, 15])
def test_adjust_requires_the_exact_end(real: Server, apart: int) -> None:
    real.run("acquire", 60_000)
    end = int(real.run("time_left")[1])

    assert real.run("adjust", end + apart, end - 30_000, end) == ["mine:1", MINE, 1]
    assert real.run("adjust", end, end - 30_000, end) == "mine:1"
    assert real.run("adjust", end, end - 30_000, end) == ["mine:1", MINE, 0]

    assert int(real.run("time_left")[1]) == end - 30_000


def test_late_adjust_is_refused(real: Server) -> None:
    real.run("acquire", 60_000)
    end = int(real.run("time_left")[1])

    assert real.run("adjust", end, end - 30_000, end - 60_001) == ["mine:1", MINE, 1]

    assert int(real.run("time_left")[1]) == end


@pytest.mark.parametrize("last", [MINE, "token"])
@pytest.mark.parametrize("endless", [0, 1])
def test_settle_takes_effect_once(real: Server, last: str, endless: int) -> None:
    _, time = real.run("acquire", 10_000, 1)
    ends = int(time) + 10_000

    assert real.run("settle", last, endless, ends) == "mine:1"
    assert real.run("settle", last, endless, ends) == "mine:1"

    assert real.client.get("lock") == last
    assert (real.client.pttl("lock") == -1) is bool(endless)
    real.client.delete("lock")
    while int(real.client.time()[1]) // 1000 == int(time) % 1000:
        pass  # the next millisecond
    real.run("acquire", 10_000)  # a late copy
    assert real.run("settle", last, endless, ends)[:2] == ["mine:1", MINE]
    assert real.client.get("lock") == MINE
    assert 0 < real.client.pttl("lock") <= 10_000


@pytest.mark.parametrize(("granted", "left"), [(MINE, None), ("another", "one|another|2000")])
def test_settle_also_confirms_the_grant(real: Server, granted: str, left: str | None) -> None:
    _, time = real.run("acquire", 10_000, 1)
    real.client.hset("state", "granted", f"one|{granted}|2000")
    arguments = (MINE, 1, "token", 0, int(time) + 10_000)

    for _ in range(2):
        real.client.eval(_lua.script("settle").text, 3, "lock", "queue", "state", *arguments)

    assert real.client.get("lock") == "token"
    assert real.client.hget("state", "granted") == left


@pytest.fixture
def keys() -> tuple[bytes, ...]:
    return with_notes((b"lock",))


@pytest.mark.parametrize("verb", ["release", "min_hold"])
@pytest.mark.parametrize("missing", ["zadd", "zremrangebyrank", "pexpire"])
def test_lock_is_released_without_permission_to_note_it(
    real: Server, local: LocalServer, verb: str, missing: str, keys: tuple[bytes, ...]
) -> None:
    rules = ("reset", "on", ">any", "~*", "&*", "+@all", f"-{missing}")
    real.client.execute_command("ACL", "SETUSER", "limited", *rules)
    client = local.client(username="limited", password="any")  # noqa: S106
    real.client.set(keys[0], MINE, px=60_000)
    details = (5_000, MINE, "always") if verb == "min_hold" else (MINE, "always")

    assert client.eval(_lua.script(verb).text, 4, *keys, MINE, 1, *details) == b"mine:1"

    assert real.client.get(keys[0]) == ("mine:rest" if verb == "min_hold" else None)
    assert not real.client.exists(keys[3])


def test_repeated_release_finds_its_note(real: Server, keys: tuple[bytes, ...]) -> None:
    client, text = real.client, _lua.script("release").text

    def released(*details: Any) -> Any:
        return client.eval(text, 4, *keys, MINE, 1, *details)

    client.set(keys[0], MINE, px=60_000)
    assert released("first", "always") == "mine:1"
    client.set(keys[0], "another", px=60_000)

    assert released("first", "always") == released("first") == "mine:1"
    assert released() == released("second") == ["mine:1", 0, "another"]
    assert 29_000 < client.pttl(keys[3]) <= _lua.RECORD_TTL


def test_number_of_noted_releases_is_limited(real: Server, keys: tuple[bytes, ...]) -> None:
    client, text = real.client, _lua.script("release").text
    half_a_minute_ago = int(client.time()[0]) * 1000 - _lua.RECORD_TTL
    client.zadd(keys[3], {f"old {number}": half_a_minute_ago - number for number in range(20)})
    for number in range(_lua.MOST_RECORDS + 20):
        client.set(keys[0], MINE, px=60_000)
        client.eval(text, 4, *keys, MINE, 1, f"number {number}", "always")
        assert number or client.zcard(keys[3]) == 1

    assert client.zcard(keys[3]) == _lua.MOST_RECORDS
    assert client.zscore(keys[3], f"number {_lua.MOST_RECORDS + 19}") is not None


@pytest.mark.parametrize("has_notes", [False, True])
def test_release_without_waiters_does_not_extend_the_notes(
    real: Server, has_notes: bool, keys: tuple[bytes, ...]
) -> None:
    client = real.client
    if has_notes:
        client.zadd(keys[3], {"another": int(client.time()[0]) * 1000})
        client.pexpire(keys[3], 10_000)
    client.set(keys[0], MINE, px=60_000)

    assert client.eval(_lua.script("release").text, 4, *keys, MINE, 1) == "mine:1"

    assert client.zrange(keys[3], 0, -1) == (["another", MINE] if has_notes else [])
    assert client.pttl(keys[3]) <= 10_000


def test_acquire_refuses_an_identifier_set_by_another(real: Server) -> None:
    real.client.set("lock", MINE, px=60_000)

    assert real.run("acquire", 60_000, 2)[:2] == ["mine:1", MINE]
    real.client.delete("lock")
    assert real.run("acquire", 60_000, 2) == "mine:1"
