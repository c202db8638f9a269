"""What the checks of ``redis-lock doctor`` say about facts that are given to them."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from redis_lock_decorators import ConfigurationError
from redis_lock_decorators._diagnosis import (
    client_settings,
    clocks,
    missing_rights,
    notifications,
    rights,
)
from redis_lock_decorators._diagnosis.client_settings import ClientSettings, settings_of
from redis_lock_decorators._diagnosis.clocks import ClockSample
from redis_lock_decorators._diagnosis.finding import Finding, Severity, at, merged
from redis_lock_decorators._diagnosis.nodes import parsed_info
from redis_lock_decorators._diagnosis.notifications import Delivery
from redis_lock_decorators._diagnosis.rights import Denial, Rights
from redis_lock_decorators._diagnosis.server_state import CHECKS, findings
from redis_lock_decorators._rules.permissions import RIGHTS
from redis_lock_decorators.diagnosis import diagnose

HEALTHY = {
    "redis_version": "7.2.4",
    "role": "master",
    "slave_read_only": "1",
    "aof_enabled": "1",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": "1000",
    "rdb_last_bgsave_status": "ok",
    "aof_last_write_status": "ok",
    "connected_clients": "10",
    "maxclients": "10000",
    "master_repl_offset": "30000000",
}
REPLICA = "ip=10.0.0.2,port=6379,state=online,offset=29999000,lag=0"
EXCLUSION, FAILURE, WAITING, RISK = list(Severity)[:4]


def severities(found: Any) -> list[Severity]:
    return [one.severity for one in found]


def test_healthy_server_has_no_findings() -> None:
    assert list(findings(HEALTHY)) == []


@pytest.mark.parametrize(
    ("changes", "severity", "title"),
    [
        ({"maxmemory": "9", "maxmemory_policy": "allkeys-lru"}, EXCLUSION, "allkeys-lru"),
        ({"maxmemory": "9", "maxmemory_policy": "volatile-ttl"}, EXCLUSION, "volatile-ttl"),
        ({"maxmemory_policy": "volatile-ttl"}, Severity.HINT, "volatile-ttl"),
        ({"maxmemory": "1000"}, FAILURE, "memory is used up"),
        ({"maxmemory": "1100"}, RISK, "memory is nearly used up"),
        ({"role": "slave"}, FAILURE, "is a replica"),
        ({"role": "slave", "slave_read_only": "0"}, EXCLUSION, "replica that accepts writes"),
        ({"redis_version": "6.0.16"}, FAILURE, "version 6.0.16"),
        ({"rdb_last_bgsave_status": "err"}, RISK, "cannot write its snapshot"),
        ({"aof_last_write_status": "err"}, RISK, "cannot write its append-only file"),
        ({"aof_enabled": "0"}, Severity.HINT, "no append-only file"),
        ({"slave0": REPLICA}, Severity.HINT, "Replication is asynchronous"),
        ({"connected_clients": "9500"}, RISK, "nearly as many connections"),
    ],
)
def test_each_cause_is_found(changes: dict[str, str], severity: Severity, title: str) -> None:
    (found,) = findings({**HEALTHY, **changes})

    assert found.severity is severity
    assert title in found.title
    assert found.meaning
    assert found.cure


@pytest.mark.parametrize(
    ("old", "new", "title"),
    [
        ("state=online", "state=wait_bgsave", "is not online (10.0.0.2:6379): wait_bgsave"),
        ("lag=0", "lag=9", "has not answered for more than 5 s (10.0.0.2:6379)"),
        ("offset=29999000", "offset=1000", "lacks more than 10 MB (10.0.0.2:6379)"),
    ],
)
def test_replica_that_lags_is_found(old: str, new: str, title: str) -> None:
    found = list(findings({**HEALTHY, "slave0": REPLICA.replace(old, new)}))

    assert severities(found) == [Severity.HINT, RISK]
    assert found[1].title == f"A replica {title}"


def test_memory_that_does_not_count_is_no_finding() -> None:
    info = {**HEALTHY, "maxmemory": "1000", "mem_not_counted_for_evict": "500"}
    assert list(findings(info)) == []


def test_missing_fields_are_not_taken_for_health() -> None:
    found = list(findings({}))

    assert severities(found) == [Severity.UNCHECKED] * len(found)
    silent = {"Errors of persistence", "Replicas", "The number of connections"}  # optional fields
    assert {one.title for one in found} == set(CHECKS) - silent


def test_fields_of_info_are_read() -> None:
    reply = b"# Server\r\nredis_version:7.2.4\r\nslave0:ip=::1,port=1\r\n\r\n"
    assert parsed_info(reply) == {"redis_version": "7.2.4", "slave0": "ip=::1,port=1"}


@pytest.mark.parametrize(
    ("reply", "denial"),
    [
        (b"OK", None),
        (ResponseError("MOVED 1 127.0.0.1:1"), None),
        (ResponseError("unknown command 'ZPOPMIN', with args beginning with: "), Denial.UNKNOWN),
        (NoPermissionError("User x has no permissions to run the 'get' command"), Denial.COMMAND),
        (NoPermissionError("No permissions to access a key"), Denial.KEY),
        (NoPermissionError("No permissions to access a channel"), Denial.CHANNEL),
        (  # Redis 6.2
            NoPermissionError(
                "this user has no permissions to access one of the keys used as arguments"
            ),
            Denial.KEY,
        ),
        (
            NoPermissionError(
                "this user has no permissions to run the 'get' command or its subcommand"
            ),
            Denial.COMMAND,
        ),
    ],
)
def test_refusals_are_distinguished(reply: Any, denial: Denial | None) -> None:
    assert rights.denial_of(reply) is denial


@pytest.mark.parametrize("command", sorted({one for use in RIGHTS.values() for one in use}))
def test_each_command_is_tried(command: str) -> None:
    assert command in ("SET", "SUBSCRIBE") or command in rights._probes(b"key")


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        ("GET", FAILURE),
        ("EXISTS", WAITING),
        ("ZPOPMIN", WAITING),
        ("TIME", RISK),
        ("INFO", Severity.SLOW),
        ("WAIT", Severity.HINT),
    ],
)
@pytest.mark.parametrize("denial", [Denial.COMMAND, Denial.UNKNOWN])
def test_missing_command_is_as_bad_as_its_use(
    command: str, severity: Severity, denial: Denial
) -> None:
    found = list(missing_rights.findings(Rights({command: denial}), "p:", [rights.WAITING]))

    assert found[0].severity is severity
    assert command in found[0].title + found[0].meaning


@pytest.mark.parametrize(
    ("use", "command", "severity"),
    [
        ("fencing", "TIME", FAILURE),
        ("replicas", "WAIT", FAILURE),
        ("redis-lock ls and show", "SCAN", RISK),
        ('release_method="transaction"', "WATCH", RISK),
    ],
)
def test_feature_counts_if_it_is_used(use: str, command: str, severity: Severity) -> None:
    denied = Rights({command: Denial.COMMAND})

    used, *_ = missing_rights.findings(denied, "p:", [rights.WAITING, use])
    found = missing_rights.findings(denied, "p:", [rights.WAITING])
    hints = [one.title for one in found if one.severity is Severity.HINT]

    assert used.severity is severity
    assert f"Not available here: {use}" in hints


def test_native_release_needs_one_of_two_commands() -> None:
    unknown = Denial.UNKNOWN
    uses = [rights.WAITING, 'release_method="native"']

    assert list(missing_rights.findings(Rights({"DELEX": unknown}), "p:", uses)) == []
    both = Rights({"DELEX": unknown, "DELIFEQ": unknown})
    assert severities(missing_rights.findings(both, "p:", uses)) == [FAILURE]
    assert severities(missing_rights.findings(both, "p:", uses[:1])) == [Severity.HINT]


@pytest.mark.parametrize(
    ("is_received", "counts", "titles"),
    [
        (True, {"PUBLISH": 1, "NUMSUB": None}, []),
        (False, {"PUBLISH": 1}, ["Messages are not delivered"]),
        (True, {"PUBLISH": 0}, ["The receivers of messages are not counted: PUBLISH reports 0"]),
    ],
)
def test_delivery_is_judged(is_received: bool, counts: Any, titles: list[str]) -> None:
    found = list(notifications.findings(Delivery(is_received, counts)))
    assert [one.title for one in found] == titles


def test_clocks_differ_only_if_that_is_certain() -> None:
    here, ahead = ClockSample("a", -0.5, 0.5), ClockSample("b", 2.5, 3.5)
    near = ClockSample("b", 1.0, 2.0)

    (found,) = clocks.findings([here, ahead])
    assert found.servers == ("b", "a")
    assert "2.0 s" in found.title
    assert list(clocks.findings([here, near])) == []
    assert list(clocks.findings([])) == []


@pytest.mark.parametrize(
    ("settings", "expire", "titles"),
    [
        (ClientSettings(5.0, 10, True), 10, []),
        (ClientSettings(None, 0, True), 10, []),
        (ClientSettings(0.05, 0, True), 10, ["socket_timeout of the client is short: 0.05 s"]),
        (ClientSettings(5.0, 0, True), 2, ["One lost reply costs most of a lease of 2 s"]),
        (ClientSettings(0.5, 0, True), 2, []),
        (ClientSettings(None, 0, False), 10, ["The client has no socket_timeout"]),
        (ClientSettings(8.0, 0, False), 10, ["One lost reply costs most of a lease of 10 s"]),
        (ClientSettings(5.0, 10, False), 10, ["The client repeats a request for up to 55 s"]),
    ],
)
def test_timeouts_are_compared_with_the_lease(
    settings: ClientSettings, expire: float, titles: list[str]
) -> None:
    assert [one.title for one in client_settings.findings(settings, expire)] == titles


def test_settings_are_read_from_a_client() -> None:
    client = redis.Redis(socket_timeout=3, retry=Retry(NoBackoff(), 4))
    parameters = client.connection_pool.connection_kwargs

    assert settings_of(client, parameters) == ClientSettings(3, 4, True)
    client.execute_command = lambda *_, **__: None  # type: ignore[method-assign]
    assert settings_of(client, parameters) == ClientSettings(3, 4, False)


def test_long_round_trip_is_found() -> None:
    assert severities(client_settings.far(0.2, 1)) == [RISK]
    assert list(client_settings.far(0.2, 10)) == []


def test_findings_of_several_servers_are_joined_worst_first() -> None:
    hint, worst = Finding(Severity.HINT, "h", "m"), Finding(EXCLUSION, "e", "m")

    found = merged([at("a", hint), at("b", worst), at("b", hint), at("a", hint)])

    assert [(one.title, one.servers) for one in found] == [("e", ("b",)), ("h", ("a", "b"))]
    assert [one.is_breaking for one in found] == [True, False]


def test_unknown_use_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ConfigurationError, match="'fence'"):
        diagnose(redis.Redis(port=1), uses=["fence"])
