"""The servers and users that ``redis-lock`` connects to, and what it says if that fails."""

from __future__ import annotations

import itertools
import socket
import traceback
from collections.abc import Iterator
from typing import Any

import click
import pytest
from support.cli import Done, Program, ran
from support.tls import TlsFront

from redis_lock_decorators import LockLostError, RedisLock
from redis_lock_decorators._rules.permissions import rules
from redis_lock_decorators.cli.connecting import connected
from redis_lock_decorators.testing import LocalCluster, LocalSentinel

SECRET = "opensesame"  # noqa: S105
_users = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with LocalCluster() as found:
        yield found


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Any]:
    with LocalSentinel() as found:
        yield found


@pytest.fixture
def user(direct: Any) -> Iterator[str]:
    """A user who may only list and show locks, with a password."""
    user = f"viewer-{next(_users)}"
    allowed = rules("sys:lock:", ["redis-lock ls and show"])
    allowed = [rule for rule in allowed if rule not in ("+evalsha", "+eval", "+set", "+del")]
    direct.execute_command("ACL", "SETUSER", user, "reset", "on", f">{SECRET}", *allowed)
    yield user
    direct.execute_command("ACL", "DELUSER", user)


def is_listed(done: Done, name: str) -> bool:
    assert (done.code, done.err) == (0, "")
    return [line.split("\t")[-1] for line in done.out.splitlines()[1:]] == [name]


@pytest.mark.parametrize("form", ["redis", "redis+cluster"])
def test_cluster_is_reached_by_any_node(cluster: Any, name: str, form: str) -> None:
    nodes = ",".join(f"127.0.0.1:{port}" for port in cluster.ports)
    url = cluster.urls[-1] if form == "redis" else f"redis+cluster://{nodes}"
    lease = RedisLock(name, client=cluster.client()).acquire()

    assert is_listed(ran("--url", url, "ls", name), name)
    assert ran("--url", url, "break", name, "--yes").code == 0
    with pytest.raises(LockLostError):
        lease.release()


def test_master_is_found_by_sentinel(sentinel: Any, name: str) -> None:
    hosts = ",".join(f"{host}:{port}" for host, port in sentinel.sentinels)
    with RedisLock(name, client=sentinel.client()):
        url = f"redis+sentinel://{hosts}/{sentinel.service_name}/0"
        assert is_listed(ran("ls", name, url=url), name)
    checked = ran("doctor", url=url)
    assert (checked.code, checked.out, checked.err) == (0, "", "")

    done = ran("ls", url=f"redis://{hosts.partition(',')[0]}")
    assert done.code == 2
    assert "this is a Sentinel" in done.err


def test_certificate_of_the_server_is_verified(
    server: Any, direct: Any, name: str, tmp_path: Any
) -> None:
    with TlsFront(server, tmp_path) as front, RedisLock(name, client=direct):
        url = f"rediss://localhost:{front.port}/0"
        verified = f"{url}?ssl_ca_certs={front.authority}"
        assert is_listed(ran("ls", name, url=verified), name)
        assert ran("doctor", url=verified).lines == []

        done = ran("ls", url=url)
    assert done.code == 69
    assert "certificate verify failed" in done.err


def test_user_of_few_permissions_lists_and_shows(
    server: Any, direct: Any, name: str, user: str
) -> None:
    url = f"redis://{user}:{SECRET}@{server.host}:{server.port}/0"
    with RedisLock(name, client=direct):
        assert is_listed(ran("ls", name, url=url), name)
        assert ran("show", name, url=url).code == 0
        broken = ran("break", name, "--yes", url=url)

    assert broken.code == 69
    assert "permission" in broken.err
    assert SECRET not in broken.err + broken.out


def test_wrong_password_is_not_printed(server: Any, user: str) -> None:
    secret = f"{SECRET}-wrong"
    done = ran("--url", f"redis://{user}:{secret}@{server.host}:{server.port}/0", "ls")

    assert done.code == 69
    assert done.err.startswith("redis-lock: the server: ")
    assert len(done.err.splitlines()) == 1
    assert SECRET not in done.err + done.out


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@localhost",
        f"redis://user:{SECRET}@localhost:port",
        f"redis+sentinel://user:{SECRET}@localhost",
        f"redis+other://user:{SECRET}@localhost",
        f"redis://user:{SECRET}@[localhost",
        f"redis://user:{SECRET}@localhost?socket_timeout=soon",
    ],
)
def test_url_of_another_form_is_not_printed(url: str) -> None:
    with pytest.raises(click.UsageError, match=r"redis\+cluster://") as caught:
        connected(url)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_url_that_cannot_be_read_is_wrong_use() -> None:
    done = ran("--url", f"other://user:{SECRET}@localhost", "ls")

    assert done.code == 2
    assert "redis+cluster://" in done.err
    assert SECRET not in done.err + done.out


@pytest.mark.parametrize("verb", [["ls"], ["show", "x"], ["break", "x", "--yes"], ["doctor"]])
def test_server_that_is_down_is_reported(verb: list[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = ran(*verb, url=f"redis://127.0.0.1:{unused.getsockname()[1]}")

    assert (done.code, done.out) == (69, "")
    assert "Connection refused" in done.err
    assert len(done.err.splitlines()) == 1


def test_server_that_does_not_answer_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = ran("ls", url=f"redis://127.0.0.1:{port}?socket_timeout=0.2")

    assert (done.code, done.out) == (69, "")
    assert "imeout" in done.err


def test_server_that_dies_while_the_user_is_asked_is_reported(frail: Any, name: str) -> None:
    frail.client().set(f"sys:lock:{name}", "external", px=60_000)
    with Program("break", name, url=frail.url, width=80) as program:
        program.until_error("[y/N]: ")
        frail.kill()
        program.write("y\n")
        done = program.done()

    assert done.code == 69
    assert "Traceback" not in done.err


def test_client_comes_from_a_function(server: Any, direct: Any, name: str, tmp_path: Any) -> None:
    (tmp_path / "shop_redis.py").write_text(
        f"import redis\ndef connect(): return redis.Redis.from_url({server.url!r})\n"
    )
    with RedisLock(name, client=direct):
        found = ran("ls", name, cwd=tmp_path, REDIS_LOCK_CONNECTION="shop_redis:connect")
        missing = ran("ls", name, cwd=tmp_path, REDIS_LOCK_CONNECTION="shop_redis:other")

    assert is_listed(found, name)
    assert missing.code == 2
    assert "package.module:function" in missing.err


def test_address_in_the_variable_of_a_function_is_not_shown() -> None:
    found = ran("ls", REDIS_LOCK_CONNECTION="redis://:geheim@localhost")

    assert found.code == 2
    assert "REDIS_URL" in found.err
    assert "geheim" not in found.err
