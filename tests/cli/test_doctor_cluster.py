"""``redis-lock doctor`` on a cluster."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.cli import ran
from support.proxy import Command, FaultProxy

from redis_lock_decorators.diagnosis import Finding, Severity, diagnose
from redis_lock_decorators.testing import LocalCluster

SECRET = "opensesame"  # noqa: S105
TIMEOUT = 5  # seconds; redis-py before 8 has no limit, which is a finding


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The last test kills one of its nodes."""
    with LocalCluster() as found:
        yield found


def found(client: Any) -> list[Finding]:
    """What is found, without hints."""
    with client:
        return [one for one in diagnose(client) if one.severity is not Severity.HINT]


def test_nothing_is_said_of_a_healthy_cluster(cluster: Any) -> None:
    done = ran("doctor", url=cluster.urls[0])

    assert (done.code, done.out, done.err) == (0, "", "")


def test_each_node_is_checked(cluster: Any) -> None:
    node = cluster.masters[1]
    with node.client() as admin:
        admin.config_set("maxmemory", "100mb")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        (row,) = ran("doctor", "--json", url=cluster.urls[0]).out.splitlines()
        admin.config_set("maxmemory-policy", "noeviction")
        admin.config_set("maxmemory", "0")

    assert json.loads(row)["servers"] == [f"{node.host}:{node.port}"]


def test_printed_rule_is_enough(cluster: Any) -> None:
    printed = ran("doctor", "--acl", "shop", url=cluster.urls[0])
    for node in cluster.masters:
        with node.client() as admin:
            admin.execute_command(*shlex.split(printed.out), "on", f">{SECRET}")
    assert found(cluster.client(socket_timeout=TIMEOUT, username="shop", password=SECRET)) == []

    node = cluster.masters[1]
    with node.client() as admin:
        admin.execute_command("ACL", "SETUSER", "shop", "-zpopmin")
    (finding,) = found(cluster.client(socket_timeout=TIMEOUT, username="shop", password=SECRET))

    assert finding.title == "The user must not run ZPOPMIN"
    assert finding.servers == (f"{node.host}:{node.port}",)


def test_clocks_are_compared(cluster: Any) -> None:
    def an_hour_ahead(command: Command, reply: bytes) -> bytes:
        now = str(int(time.time()) + 3600).encode()
        return b"*2\r\n$10\r\n%b\r\n$1\r\n0\r\n" % now if command == [b"TIME"] else reply

    with contextlib.ExitStack() as stack:
        proxies = {
            node.port: stack.enter_context(FaultProxy(node.host, node.port))
            for node in cluster.masters
        }
        remapped = partial(
            cluster.client,
            socket_timeout=TIMEOUT,
            address_remap=lambda at: (at[0], proxies[at[1]].port),
        )
        assert found(remapped()) == []

        ahead = proxies[cluster.ports[1]]
        ahead.rewrite = an_hour_ahead
        # A fence is made of the clock: it is not among the findings that break locks.
        (finding,) = found(remapped())

    assert finding.title.startswith("The clocks of the servers differ by ")
    assert finding.servers[0] == f"127.0.0.1:{ahead.port}"
    assert not finding.is_breaking


@pytest.fixture
def without_slot(cluster: Any) -> Iterator[None]:
    """Take the first slot from its node for a test."""
    with contextlib.ExitStack() as stack:
        admins = [stack.enter_context(node.client()) for node in cluster.masters]
        for admin in admins:
            admin.config_set("cluster-require-full-coverage", "no")
            admin.execute_command("CLUSTER", "DELSLOTS", 0)
        yield
        for admin in admins:
            admin.config_set("cluster-require-full-coverage", "yes")
        admins[0].execute_command("CLUSTER", "ADDSLOTS", 0)


@pytest.mark.usefixtures("without_slot")
def test_slots_without_a_node_are_found(cluster: Any) -> None:
    client = cluster.client(socket_timeout=TIMEOUT, require_full_coverage=False)
    (finding,) = found(client)
    assert finding.title == "1 of 16384 hash slots have no node"
    assert finding.severity is Severity.FAILURE

    done = ran("doctor", url=cluster.urls[0])
    # With full coverage, as is the default, clients of redis-py 8 refuse such a cluster.
    assert done.code in (1, 69)
    assert "16384 hash slots" in done.out or done.err.startswith("redis-lock: the cluster: ")


def test_node_that_is_down_is_found(cluster: Any) -> None:
    cluster.masters[2].kill()
    for node in cluster.masters[:2]:
        node.wait_until_says("cluster_state:fail", "CLUSTER", "INFO")

    rows = found(cluster.client(socket_timeout=TIMEOUT, require_full_coverage=False))
    assert [(one.severity, one.title) for one in rows] == [
        (Severity.FAILURE, "The server refuses to write the key of a lock"),
        (Severity.FAILURE, "A server cannot be used"),
    ]
    assert rows[1].servers == (f"127.0.0.1:{cluster.ports[2]}",)
