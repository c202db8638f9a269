"""A script that ends with an error has changed no holder, even if the server refuses a command."""

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
LOCK, QUEUE, STATE = "lock", "queue", "state"
LOCKS = (LOCK, "lock2", QUEUE, "queue2", STATE, "state2")
ONE = (LOCK, QUEUE, STATE)
#: The keys of a release, with its notes of earlier releases.
RELEASED = (*ONE, "released")
TWO_RELEASED = (*LOCKS, "released", "released2")
#: Queue entries: of a subscribed waiter, of an ended process, of one whose grant lapsed.
MINE, LIVE, DEAD, LAZY = "mine", "open|live|20000", "gone|dead|20000", "open|lazy|20000"


class Scene(NamedTuple):
    """The data in the server, and the request that is sent."""

    verb: str
    keys: tuple[str, ...]
    details: tuple[Any, ...] = ()
    holder: str | None = MINE
    entries: tuple[str, ...] = ()
    state: tuple[tuple[str, str], ...] = ()


GRANTED, SUSPECT = ("granted", f"open|{MINE}|20000"), ("suspect:open", "1")
ENQUEUE = (LEASE, "open", 20_000, 0)
SCENES = {
    "acquire": Scene("acquire", (LOCK,), (LEASE,), None),
    "acquire and return the time": Scene("acquire", (LOCK,), (LEASE, 1), None),
    "acquire two": Scene("acquire", LOCKS[:2], (LEASE,), None),
    "acquire again": Scene("acquire", (LOCK,), (LEASE, 1)),
    "acquire with a fence": Scene("acquire_fenced", (*LOCKS[:2], "f1", "f2"), (LEASE, LEASE), None),
    "extend": Scene("extend", LOCKS[:2], (2 * LEASE,)),
    "renew": Scene("renew", LOCKS[:2], (MINE, 2 * LEASE, MINE, 2 * LEASE)),
    "settle": Scene("settle", ONE, ("last", 1, 10**15), state=(GRANTED,)),
    "settle with an expiry": Scene("settle", ONE, ("last", 0, 10**15), state=(GRANTED,)),
    "unlock": Scene("unlock", (LOCK,), (0,)),
    "unlock later": Scene("unlock", (LOCK,), (1000,)),
    "enqueue for a free lock": Scene("enqueue", ONE, (*ENQUEUE, ""), None),
    "enqueue for a lock that was handed off": Scene(
        "enqueue", ONE, (*ENQUEUE, ""), state=(GRANTED,)
    ),
    "enqueue with another entry": Scene("enqueue", ONE, (*ENQUEUE, f"x|{MINE}|20000"), "mine"),
    "enqueue": Scene("enqueue", ONE, (*ENQUEUE, ""), "other", (LIVE,), (SUSPECT,)),
    "enqueue for a lock whose grant lapsed": Scene(
        "enqueue", ONE, (*ENQUEUE, ""), None, (DEAD, LIVE)
    ),
    "enter": Scene("enter", ONE, (2 * LEASE, LIVE), entries=(LIVE,), state=(("granted", LIVE),)),
    "cancel": Scene("cancel", ONE, (DEAD,), "other", (DEAD,)),
    "cancel for a lock that was handed off": Scene("cancel", ONE, ("x",), entries=(LIVE,)),
    "force": Scene("force", ONE, entries=(DEAD, LIVE)),
    "recheck": Scene("recheck", ONE, (DEAD, LIVE), None, (DEAD, LIVE)),
    "recheck after a grant that lapsed": Scene(
        "recheck", ONE, (LIVE,), None, (LIVE,), (("granted", "late|lapsed|20000"),)
    ),
    "recheck a min-hold placeholder": Scene("recheck", ONE, (), f"{MINE}:rest", (LIVE,)),
    "release": Scene("release", RELEASED),
    "release without a live waiter": Scene("release", RELEASED, entries=(DEAD,)),
    "release to a waiter": Scene("release", RELEASED, (MINE, 1), entries=(DEAD, LIVE)),
    "release to a suspect": Scene("release", RELEASED, entries=(LAZY,), state=(SUSPECT, GRANTED)),
    "release two": Scene("release", TWO_RELEASED, (MINE, 1), entries=(LIVE,)),
    "min hold": Scene("min_hold", RELEASED, (1000, MINE, 1), entries=(LIVE,), state=(GRANTED,)),
    "min hold of two": Scene("min_hold", TWO_RELEASED, (1000, MINE, 1), entries=(DEAD,)),
}


#: Of the user with limited rights.
SECRET = "of a test"  # noqa: S105  # nothing is secret there


class Limited:
    """A server, a client with limited rights and a subscribed client."""

    def __init__(self, server: LocalServer) -> None:
        self.root = server.client(decode_responses=True)
        self.permit()
        self.client = server.client(username="limited", password=SECRET, decode_responses=True)
        self.subscription = server.client().pubsub()
        self.subscription.subscribe("open")
        assert self.subscription.get_message(timeout=20) is not None

    def permit(self, *but: str) -> None:
        """Permit the user everything but these commands."""
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
            for score, entry in enumerate(scene.entries):
                self.root.zadd(f"{QUEUE}{suffix}", {entry: score + 1 + number})
            for field, value in scene.state:
                self.root.hset(f"{STATE}{suffix}", field, value)

    def run(self, scene: Scene) -> Any:
        text, count = _lua.script(scene.verb).text, len(scene.keys)
        identifier = "open" if scene.verb == "recheck" else MINE
        return self.client.eval(text, count, *scene.keys, identifier, "1", *scene.details)

    def endless(self, keys: list[str]) -> list[str]:
        """The keys that do not expire."""
        return [key for key in keys if self.root.pttl(key) == -1]

    def stored(self) -> list[Any]:
        """The holders of the locks, their leases, and the queues with the live waiter."""
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


def assert_all_or_nothing(limited: Limited, scene: Scene, fault: str = "") -> None:
    """Check that the request succeeds or changes nothing."""
    before = limited.stored()
    try:
        limited.run(scene)
    except RedisError as error:
        fault += f": {error}"
    else:
        return
    assert limited.stored() == before, fault


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_refused_command_changes_nothing_or_the_script_succeeds(
    limited: Limited, scene: Scene
) -> None:
    for command in commands_of(scene.verb):
        limited.begin(scene)
        limited.permit(command)
        try:
            assert_all_or_nothing(limited, scene, command)
        finally:
            limited.permit()


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_refused_command_leaves_no_key_without_expiry(limited: Limited, scene: Scene) -> None:
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
def test_used_up_memory_changes_nothing_or_the_script_succeeds(
    limited: Limited, scene: Scene
) -> None:
    limited.begin(scene)
    limited.limit_memory(1)
    try:
        assert_all_or_nothing(limited, scene)
    finally:
        limited.limit_memory(0)


def other_data_in(*names: str) -> Callable[[Limited], None]:
    def write(limited: Limited) -> None:
        for name in names:
            limited.root.set(name, "other data")

    return write


@pytest.mark.parametrize(
    "write",
    [other_data_in(QUEUE), other_data_in(STATE), other_data_in("queue2"), other_data_in("state2")],
    ids=["queue", "state", "other queue", "other state"],
)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_other_data_change_nothing_or_the_script_succeeds(
    limited: Limited, scene: Scene, write: Callable[[Limited], None]
) -> None:
    limited.begin(scene)
    write(limited)
    assert_all_or_nothing(limited, scene)


@pytest.mark.parametrize("verb", ["release", "force", "cancel"])
@pytest.mark.parametrize("name", [QUEUE, STATE])
def test_other_data_in_companion_keys_do_not_prevent_the_release(
    limited: Limited, verb: str, name: str
) -> None:
    limited.begin(Scene(verb, ONE))
    other_data_in(name)(limited)

    keys = RELEASED if verb == "release" else ONE
    limited.run(Scene(verb, keys, (LIVE,) if verb == "cancel" else ()))

    assert limited.root.get(LOCK) is None
