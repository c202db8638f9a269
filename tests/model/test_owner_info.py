"""``owner_info.lua`` in a real server does the same as its model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model.memory import Memory
from redis.exceptions import ResponseError

from redis_lock_decorators import _lua
from redis_lock_decorators._io import error_replies
from redis_lock_decorators.testing import LocalServer
from redis_lock_decorators.testing.fake.owner_info import Info, attach
from redis_lock_decorators.testing.fake.scripts import Scripts

LEASE, KEYS, COMPANION = 60_000, ("lock", "queue", "waiters", "released"), "owner"
NOTING = ("release", "min_hold")
WAITERS, TEXTS = st.sampled_from("ab"), st.sampled_from(["", '"since":1}', '*"since":2}'])
VERBS = st.one_of(
    st.tuples(
        *(st.just("enqueue"), WAITERS, st.just(LEASE), st.just("one")),
        *(st.just(20_000), st.just(0), st.just("")),
    ),
    st.tuples(st.just("enter"), WAITERS, st.just(LEASE), st.just("one|a|20000")),
    st.tuples(st.just("cancel"), WAITERS, st.just("")),
    st.tuples(st.just("release"), WAITERS),
    st.tuples(st.just("min_hold"), WAITERS, st.just(LEASE)),
    st.tuples(st.just("force"), WAITERS),
)
#: A verb, the information in its request, and its serial number.
STEPS = st.tuples(VERBS, TEXTS, st.integers(0, 9))


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with LocalServer() as server, server.client(decode_responses=True) as client:
        yield client


def ended(milliseconds: int) -> int:
    """A time to live in steps of ten seconds, as some time passes during the test."""
    return milliseconds if milliseconds < 0 else -(-milliseconds // 10_000)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, min_size=1, max_size=15))
def test_python_does_the_same_as_a_real_server(client: Any, steps: list[Any]) -> None:
    memory = Memory()
    scripts = Scripts(memory)
    memory.number = client.info("server")["run_id"]
    client.flushall()
    for (verb, identifier, *details), text, serial in steps:
        keys = KEYS if verb in NOTING else KEYS[:3]

        def run(
            verb: str = verb,
            keys: Any = keys,
            identifier: str = identifier,
            serial: int = serial,
            details: Any = details,
        ) -> Any:
            return getattr(scripts, verb)(f"{identifier}:{serial}", keys, identifier, *details)

        wanted = attach(memory, serial, [Info(COMPANION, KEYS[0], identifier, text)], run)
        script, arguments = _lua.with_owner_info(verb), (identifier, serial, *details)
        reply = client.eval(
            *(script.text, len(keys) + 1, *keys, COMPANION, *arguments), *(1, "", text, 1)
        )

        assert without_times(reply) == without_times(wanted)
        assert (client.get("lock"), client.get(COMPANION)) == (
            memory.get("lock"),
            memory.get(COMPANION),
        )
        assert ended(client.pttl(COMPANION)) == ended(memory.pttl(COMPANION))


def without_times(reply: Any) -> Any:
    """A reply without times to live, of which some milliseconds pass during the test."""
    if isinstance(reply, list):
        return [without_times(item) for item in reply]
    return ended(reply) if isinstance(reply, int) and reply > 1000 else reply


def run(client: Any, verb: str, *arguments: Any, mark: str = "", keys: Any = ("lock",)) -> Any:
    text = _lua.with_owner_info(verb).text
    info = (1, "a", f'{mark}"since":1}}', 1)
    return client.eval(text, len(keys) + 1, *keys, COMPANION, "a", *arguments, *info)


def test_fence_of_the_reply_is_stored(client: Any) -> None:
    client.flushall()

    keys = ("lock", "fence")
    _, fence = run(client, "acquire_fenced", 1, LEASE, LEASE, mark="*", keys=keys)

    assert f'"n":1,"fence":{fence},"since":1}}' in client.get(COMPANION)


@pytest.mark.parametrize("kind", ["lock", COMPANION])
def test_other_data_causes_no_error_after_the_verb(client: Any, kind: str) -> None:
    client.flushall()
    client.rpush(kind, "other data")
    if kind == "lock":
        assert run(client, "extend", 1, LEASE) == [0, ["a:1", 0], ""]
    else:
        assert run(client, "acquire", 1, LEASE) == "a:1"


def test_information_about_an_endless_lock_has_an_end(client: Any) -> None:
    client.flushall()
    client.set("lock", "a")

    run(client, "extend", 1, LEASE)

    assert 0 < client.pttl(COMPANION) <= 60_000


def test_memory_that_is_used_up_does_not_prevent_a_release(client: Any) -> None:
    client.flushall()
    run(client, "acquire", 1, LEASE)
    client.config_set("maxmemory", 1)
    try:
        keys = KEYS
        reply = client.eval(
            _lua.with_owner_info("release").text, 5, *keys, COMPANION, "a", 2, 1, "", "", 1
        )
    finally:
        client.config_set("maxmemory", 0)

    assert reply == "a:2"
    assert client.exists("lock", COMPANION) == 0


@pytest.mark.parametrize("verb", ["extend", "renew"])
def test_error_reply_of_a_verb_is_the_reply(client: Any, verb: str) -> None:
    """A caller would take it for the reply to another command if it were an item of a list."""
    client.execute_command("ACL", "SETUSER", "blind", "on", "nopass", "~*", "+@all", "-get")
    client.set("lock", "a", px=LEASE)
    details = (LEASE,) if verb == "extend" else ("a", LEASE)
    command = ("lock", COMPANION, "a", 1, *details, 1, "", '"since":1}', 1)

    with client.client() as blind:
        blind.execute_command("AUTH", "blind", "")
        with pytest.raises(ResponseError) as raised:
            blind.execute_command("EVAL", _lua.with_owner_info(verb).text, 2, *command)
        blind.connection.disconnect()
    assert error_replies.lacks(raised.value) == "right"
