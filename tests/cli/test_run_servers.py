"""``redis-lock run`` on every kind of server, and its messages where a server is refused."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.cli import ran
from support.limited import Place
from support.tls import TlsFront

from redis_lock_decorators._rules import permissions
from redis_lock_decorators.testing import LocalCluster, LocalSentinel
from redis_lock_decorators.testing.ports import free_ports

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="run needs fork")

PASSWORD = "a-very-secret-word"  # noqa: S105
SHOW = 'echo "held by $REDIS_LOCK_IDENTIFIER, fence $REDIS_LOCK_FENCE"'


def holds(url: str, name: str, *options: str) -> bool:
    """Whether the command ran under the lock."""
    done = ran("run", name, "--fencing", *options, "--", "sh", "-c", SHOW, url=url)
    assert (done.code, done.err) == (0, "")
    return done.out.startswith("held by ")


@pytest.fixture
def protected(server: Any) -> Iterator[Any]:
    """The server with a user that has the documented rights only."""
    place = Place([server], is_cluster=False)
    (admin,) = place.admins
    rules = permissions.rules("sys:lock:")
    known = [one for one in rules if one[0] != "+" or one[1:] in place.known]
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", f">{PASSWORD}", *known)
    yield server
    admin.execute_command("ACL", "DELUSER", "worker")


def test_cluster(name: str) -> None:
    with LocalCluster() as cluster:
        port = cluster.ports[0]
        assert holds(f"redis://127.0.0.1:{port}/0", name)
        assert holds(f"redis+cluster://127.0.0.1:{port}", name)
        assert holds(f"redis+cluster://127.0.0.1:{port}", f"{{{name}}}:a", f"{{{name}}}:b")


def test_sentinel(name: str) -> None:
    with LocalSentinel() as sentinel:
        hosts = ",".join(f"{host}:{port}" for host, port in sentinel.sentinels)

        assert holds(f"redis+sentinel://{hosts}/{sentinel.service_name}", name)


def test_tls(server: Any, name: str, tmp_path: pathlib.Path) -> None:
    with TlsFront(server, tmp_path) as front:
        assert holds(f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={front.authority}", name)

        done = ran("run", name, "--", "true", url=f"rediss://127.0.0.1:{front.port}/0")
    assert done.code == 69
    assert "certificate" in done.err


def test_user_with_the_documented_rights(protected: Any, name: str) -> None:
    assert holds(f"redis://worker:{PASSWORD}@127.0.0.1:{protected.port}", name)


@pytest.mark.parametrize("user", ["worker:wrong-password", "stranger:wrong-password"])
def test_user_that_is_refused(protected: Any, name: str, user: str) -> None:
    url = f"redis://{user}@127.0.0.1:{protected.port}"

    _is_refused(ran("run", name, "--", "echo", "inside", url=url))


def test_key_that_the_user_must_not_use(protected: Any, name: str) -> None:
    url = f"redis://worker:{PASSWORD}@127.0.0.1:{protected.port}"

    _is_refused(ran("run", name, "--prefix", "other:", "--", "echo", "inside", url=url))


def test_command_is_not_run_without_a_server(name: str) -> None:
    (port,) = free_ports(1)
    url = f"redis://worker:{PASSWORD}@127.0.0.1:{port}/0"

    _is_refused(ran("run", name, "--", "echo", "inside", url=url))
    _is_refused(ran("--url", url, "run", name, "--", "echo", "inside", url=None))


def test_key_that_holds_other_data(server: Any, direct: Any, name: str) -> None:
    direct.hset(f"sys:lock:{name}", "field", "value")

    done = ran("run", name, "--", "echo", "inside", url=server.url)

    assert (done.code, done.out) == (2, "")
    assert "holds other data, no lock: choose another name or prefix" in done.err


def _is_refused(done: Any) -> None:
    assert (done.code, done.out) == (69, "")
    assert done.err.startswith("redis-lock: ")
    assert done.err.count("\n") == 1
    for secret in (PASSWORD, "wrong-password"):
        assert secret not in done.err
