"""What scripts write, and what copies of them leave alone, in a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redis_lock_decorators import lua
from redis_lock_decorators.rules.keys import with_queue
from redis_lock_decorators.testing import LocalServer

MINE = "mine"


class Server:
    def __init__(self, server: LocalServer) -> None:
        self.client = server.client(decode_responses=True)

    def run(self, verb: str, *arguments: Any) -> Any:
        return self.client.eval(lua.script(verb).text, 1, "lock", MINE, 1, *arguments)

    def written(self) -> int:
        """How many writes replicas would have to know of."""
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


def test_time_is_told_to_who_asks_for_it(real: Server) -> None:
    seconds, _ = real.client.time()

    mark, taken = real.run("acquire", 60_000, 1)
    real.client.set("lock", "another", px=30_000)
    again, holder, left, refused = real.run("acquire", 60_000, 1)

    assert (mark, again, holder) == ("mine:1", "mine:1", "another")
    assert 29_000 < left <= 30_000
    assert seconds <= int(taken) / 1000 <= int(refused) / 1000 < seconds + 60


def test_end_is_told_to_the_millisecond(real: Server) -> None:
    real.run("acquire", 60_000)

    found = {real.run("left")[1] for _ in range(200)}

    assert len(found) == 1
    real.client.persist("lock")
    assert real.run("left")[1:] == ["-1", -1]


@pytest.mark.parametrize("apart", [1, 15])
def test_end_that_is_a_millisecond_elsewhere_is_not_moved(real: Server, apart: int) -> None:
    real.run("acquire", 60_000)
    end = int(real.run("left")[1])

    assert real.run("adjust", end + apart, end - 30_000, end) == ["mine:1", MINE, 1]
    assert real.run("adjust", end, end - 30_000, end) == "mine:1"
    assert real.run("adjust", end, end - 30_000, end) == ["mine:1", MINE, 0]

    assert int(real.run("left")[1]) == end - 30_000


def test_move_after_its_time_is_refused(real: Server) -> None:
    real.run("acquire", 60_000)
    end = int(real.run("left")[1])

    assert real.run("adjust", end, end - 30_000, end - 60_001) == ["mine:1", MINE, 1]

    assert int(real.run("left")[1]) == end


@pytest.mark.parametrize("last", [MINE, "token"])
@pytest.mark.parametrize("endless", [0, 1])
def test_last_form_is_given_once(real: Server, last: str, endless: int) -> None:
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
def test_last_form_is_also_the_sign_that_the_lock_was_entered(
    real: Server, granted: str, left: str | None
) -> None:
    _, time = real.run("acquire", 10_000, 1)
    real.client.hset("facts", mapping={"granted": f"one|{granted}|2000", "from": "x"})
    arguments = (MINE, 1, "token", 0, int(time) + 10_000)

    for _ in range(2):
        real.client.eval(lua.script("settle").text, 3, "lock", "queue", "facts", *arguments)

    assert real.client.get("lock") == "token"
    assert real.client.hget("facts", "granted") == left


@pytest.mark.parametrize("noted", ["again", "another", None])
@pytest.mark.parametrize("verb", ["acquire", "settle"])
def test_identifier_that_is_used_again_is_not_noted_to_have_let_go(
    real: Server, verb: str, noted: str | None
) -> None:
    client = real.client
    if noted is not None:
        client.hset("facts", mapping={"from": noted, "granted": "one|x|2000"})
    if verb == "acquire":
        details = ["lock", "facts", "again", 1, 60_000, 2]
        reply = client.eval(lua.script(verb).text, 2, *details)
    else:
        client.set("lock", MINE, px=60_000)
        details = ["lock", "queue", "facts", MINE, 1, "again", 0, 10**15]
        reply = client.eval(lua.script(verb).text, 3, *details)

    assert reply in ("again:1", "mine:1")
    assert client.get("lock") == "again"
    assert 0 < client.pttl("lock") <= 60_000
    assert client.hget("facts", "from") == ("" if noted == "again" else noted)
    assert client.hget("facts", "granted") == (noted and "one|x|2000")


def test_facts_are_no_lock_that_is_taken(real: Server) -> None:
    client, text = real.client, lua.script("acquire").text
    client.set("lock", MINE, px=60_000)
    client.set("other data", "x")

    refused = client.eval(text, 2, "lock", "facts", "again", 1, 60_000, 2)
    taken = client.eval(text, 2, "lock 2", "other data", "again", 2, 60_000, 2)

    assert refused[:2] == ["again:1", MINE]
    assert taken == "again:2"
    assert client.exists("facts") == 0
    assert client.get("other data") == "x"


@pytest.mark.parametrize("verb", ["release", "rest"])
def test_note_of_who_let_go_is_made_without_the_right_to_ask_for_its_end(
    real: Server, local: LocalServer, verb: str
) -> None:
    key, queue, facts = keys = with_queue((b"lock",))
    rules = ("reset", "on", ">any", "~*", "&*", "+@all", "-pttl")
    real.client.execute_command("ACL", "SETUSER", "limited", *rules)
    client = local.client(username="limited", password="any")  # noqa: S106
    real.client.set(key, MINE, px=60_000)
    details = (5_000, 30_000) if verb == "rest" else (30_000,)
    replies = [
        client.eval(lua.script(verb).text, 3, *keys, MINE, number, *details) for number in (1, 2)
    ]

    assert replies == [b"mine:1", b"mine:2"]
    assert real.client.get(key) == ("mine:rest" if verb == "rest" else None)
    assert 0 < real.client.pttl(facts) <= lua.KEPT
    assert not real.client.exists(queue)
