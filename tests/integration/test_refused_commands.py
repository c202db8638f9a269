"""A script that ends with an error has given no lock away, whatever the server refused to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from redis.exceptions import RedisError

from redis_lock_decorators import _lua
from redis_lock_decorators.testing import LocalServer

LEASE = 60_000
LOCK, QUEUE, FACTS = "lock", "queue", "facts"
LOCKS = (LOCK, "lock2", QUEUE, "queue2", FACTS, "facts2")
ONE = (LOCK, QUEUE, FACTS)
#: The keys of a release: the notes of releases too.
RELEASED = (*ONE, "released")
TWO_RELEASED = (*LOCKS, "released", "released2")
#: Places: of one who can be told, of a process that is gone, of one that let a grant lapse.
MINE, LIVE, DEAD, LAZY = "mine", "open|live|20000", "gone|dead|20000", "open|lazy|20000"


class Scene(NamedTuple):
    """What lies in the server, and the request that meets it."""

    verb: str
    keys: tuple[str, ...]
    details: tuple[Any, ...] = ()
    holder: str | None = MINE
    places: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


GRANTED, SUSPECT = ("granted", f"open|{MINE}|20000"), ("suspect:open", "1")
LINE_UP = (LEASE, "open", 20_000, 0)
SCENES = {
    "acquire": Scene("acquire", (LOCK,), (LEASE,), None),
    "acquire and be told the time": Scene("acquire", (LOCK,), (LEASE, 1), None),
    "acquire two": Scene("acquire", LOCKS[:2], (LEASE,), None),
    "acquire again": Scene("acquire", (LOCK,), (LEASE, 1)),
    "acquire by a number": Scene("acquire_fenced", (*LOCKS[:2], "f1", "f2"), (LEASE, LEASE), None),
    "extend": Scene("extend", LOCKS[:2], (2 * LEASE,)),
    "renew": Scene("renew", LOCKS[:2], (MINE, 2 * LEASE, MINE, 2 * LEASE)),
    "settle": Scene("settle", ONE, ("last", 1, 10**15), facts=(GRANTED,)),
    "settle for a while": Scene("settle", ONE, ("last", 0, 10**15), facts=(GRANTED,)),
    "unlock": Scene("unlock", (LOCK,), (0,)),
    "unlock in a while": Scene("unlock", (LOCK,), (1000,)),
    "line up for a free lock": Scene("enqueue", ONE, (*LINE_UP, ""), None),
    "line up where it was handed over": Scene("enqueue", ONE, (*LINE_UP, ""), facts=(GRANTED,)),
    "line up at another place": Scene("enqueue", ONE, (*LINE_UP, f"x|{MINE}|20000"), "mine"),
    "line up": Scene("enqueue", ONE, (*LINE_UP, ""), "other", (LIVE,), (SUSPECT,)),
    "line up for one that lapsed": Scene("enqueue", ONE, (*LINE_UP, ""), None, (DEAD, LIVE)),
    "enter": Scene("enter", ONE, (2 * LEASE, LIVE), places=(LIVE,), facts=(("granted", LIVE),)),
    "leave": Scene("cancel", ONE, (DEAD,), "other", (DEAD,)),
    "leave where it was handed over": Scene("cancel", ONE, ("x",), places=(LIVE,)),
    "force": Scene("force", ONE, places=(DEAD, LIVE)),
    "look": Scene("recheck", ONE, (DEAD, LIVE), None, (DEAD, LIVE)),
    "look at one whose waiter let its turn lapse": Scene(
        "recheck", ONE, (LIVE,), None, (LIVE,), (("granted", "late|lapsed|20000"),)
    ),
    "look at one that rests": Scene("recheck", ONE, (), f"{MINE}:rest", (LIVE,)),
    "release": Scene("release", RELEASED),
    "release to nobody": Scene("release", RELEASED, places=(DEAD,)),
    "release to a waiter": Scene("release", RELEASED, (MINE, 1), places=(DEAD, LIVE)),
    "release to a suspect": Scene("release", RELEASED, places=(LAZY,), facts=(SUSPECT, GRANTED)),
    "release two": Scene("release", TWO_RELEASED, (MINE, 1), places=(LIVE,)),
    "rest": Scene("min_hold", RELEASED, (1000, MINE, 1), places=(LIVE,), facts=(GRANTED,)),
    "rest two": Scene("min_hold", TWO_RELEASED, (1000, MINE, 1), places=(DEAD,)),
}


#: Of the user who may not do everything.
SECRET = "of a test"  # noqa: S105  # nothing is secret there


class Limited:
    """A server, a user who may not do everything there, and somebody who listens."""

    def __init__(self, server: LocalServer) -> None:
        self.root = server.client(decode_responses=True)
        self.permit()
        self.client = server.client(username="limited", password=SECRET, decode_responses=True)
        self.subscription = server.client().pubsub()
        self.subscription.subscribe("open")
        assert self.subscription.get_message(timeout=20) is not None

    def permit(self, *but: str) -> None:
        """Let the user do everything but this."""
        rights = ("reset", "on", f">{SECRET}", "~*", "&*", "+@all", *[f"-{one}" for one in but])
        self.root.execute_command("ACL", "SETUSER", "limited", *rights)

    def limit_memory(self, most: int) -> None:
        self.root.config_set("maxmemory", most)

    def begin(self, scene: Scene) -> None:
        self.root.flushall()
        names = [key for key in scene.keys if key.startswith("lock")]
        for number, name in enumerate(names):
            suffix = name.removeprefix(LOCK)
            if scene.holder is not None:
                self.root.set(name, scene.holder, px=LEASE)
            for score, place in enumerate(scene.places):
                self.root.zadd(f"{QUEUE}{suffix}", {place: score + 1 + number})
            for field, value in scene.facts:
                self.root.hset(f"{FACTS}{suffix}", field, value)

    def run(self, scene: Scene) -> Any:
        text, count = _lua.script(scene.verb).text, len(scene.keys)
        identifier = "open" if scene.verb == "recheck" else MINE
        return self.client.eval(text, count, *scene.keys, identifier, "1", *scene.details)

    def endless(self, keys: list[str]) -> list[str]:
        """The keys that never end."""
        return [key for key in keys if self.root.pttl(key) == -1]

    def stored(self) -> list[Any]:
        """Who holds the locks, by which lease; and who waits and can be told."""
        client = self.root
        locks = [(client.get(lock), round(client.pttl(lock), -4)) for lock in LOCKS[:2]]
        queues = [queue for queue in LOCKS[2:4] if client.type(queue) == "zset"]
        return [*locks, *[queue for queue in queues if client.zscore(queue, LIVE)]]


@pytest.fixture(scope="module")
def limited() -> Iterator[Limited]:
    with LocalServer() as server:
        yield Limited(server)


def commands_of(verb: str) -> list[str]:
    """The commands that a script may send."""
    text = _lua.script(verb).text.decode()
    return sorted(set(re.findall(r"(?:call|unless_other)\('([A-Z]+)'", text)))


def assert_whole(limited: Limited, scene: Scene, fault: str = "") -> None:
    """The request does what it is to do, or nothing."""
    before = limited.stored()
    try:
        limited.run(scene)
    except RedisError as error:
        fault += f": {error}"
    else:
        return
    assert limited.stored() == before, fault


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_refused_command_ends_a_script_before_it_decides_or_not_at_all(
    limited: Limited, scene: Scene
) -> None:
    for command in commands_of(scene.verb):
        limited.begin(scene)
        limited.permit(command)
        try:
            assert_whole(limited, scene, command)
        finally:
            limited.permit()


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_refused_command_leaves_nothing_that_never_ends(limited: Limited, scene: Scene) -> None:
    companions = [key for key in LOCKS if not key.startswith(LOCK)]
    for command in set(commands_of(scene.verb)) - {"PEXPIRE"}:
        limited.begin(scene)
        for key in companions:
            limited.root.pexpire(key, LEASE)
        limited.permit(command)
        with suppress(RedisError):
            limited.run(scene)
        limited.permit()

        assert limited.endless(companions) == [], command


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_used_up_memory_ends_a_script_before_it_decides_or_not_at_all(
    limited: Limited, scene: Scene
) -> None:
    limited.begin(scene)
    limited.limit_memory(1)
    try:
        assert_whole(limited, scene)
    finally:
        limited.limit_memory(0)


def in_place_of(*names: str) -> Callable[[Limited], None]:
    def write(limited: Limited) -> None:
        for name in names:
            limited.root.set(name, "other data")

    return write


@pytest.mark.parametrize(
    "write",
    [in_place_of(QUEUE), in_place_of(FACTS), in_place_of("queue2"), in_place_of("facts2")],
    ids=["queue", "facts", "other queue", "other facts"],
)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_other_data_end_a_script_before_it_decides_or_not_at_all(
    limited: Limited, scene: Scene, write: Callable[[Limited], None]
) -> None:
    limited.begin(scene)
    write(limited)
    assert_whole(limited, scene)


@pytest.mark.parametrize("verb", ["release", "force", "cancel"])
@pytest.mark.parametrize("name", [QUEUE, FACTS])
def test_other_data_beside_a_lock_keep_nobody_from_letting_it_go(
    limited: Limited, verb: str, name: str
) -> None:
    limited.begin(Scene(verb, ONE))
    in_place_of(name)(limited)

    keys = RELEASED if verb == "release" else ONE
    limited.run(Scene(verb, keys, (LIVE,) if verb == "cancel" else ()))

    assert limited.root.get(LOCK) is None
