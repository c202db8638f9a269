"""Locks work with every option of a client that changes bytes, connections or errors.

A new option is a line in ``support.configurations``; a new use of a lock is a scene here.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.configurations import CONFIGURATIONS, VERSION, Configuration, Place
from support.fronts import do
from support.leftovers import TIDY_FRONTS, lasting, none_left
from support.lock_uses import FOR_EACH_WAIT, ONCE, WAITS, Scene, renewed
from support.tls import TlsFront

from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS
SECURITY = Path(__file__).parents[2] / "SECURITY.rst"
RIGHTS = re.findall(r"``([A-Z|]+)``", SECURITY.read_text().partition("ACL must allow")[2])


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A server that is reachable by TCP, TLS and a Unix socket."""
    # A short path: that of a socket is limited to about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="rld") as folder:
        path = f"{folder}/socket"
        with LocalServer("--unixsocket", path) as server, TlsFront(server, Path(folder)) as front:
            _allow(server.client())
            yield Place(server.host, server.port, path, front.port, front.authority)


def _allow(client: Any) -> None:
    """Create a user with the permissions of SECURITY.rst, and one that is never disconnected."""
    commands = [f"+{right}" for right in RIGHTS if right != "DELEX"]  # of Redis 8.4
    rights = ("~*", "&redis-lock:*", *commands)
    client.execute_command("ACL", "SETUSER", "limited", "reset", "on", "nopass", *rights)
    rights = ("~*", "&*", "+@all")
    client.execute_command("ACL", "SETUSER", "watcher", "reset", "on", "nopass", *rights)


def _watcher(place: Place, **options: Any) -> Any:
    user = {"username": "watcher", "password": "any"}
    return redis.Redis(place.host, place.port, **user, **options)


@pytest.fixture(scope="module")
def direct(place: Place) -> Iterator[Any]:
    """A client that checks the results."""
    with _watcher(place) as client:
        client.ping()  # its connection exists from the start
        yield client


@pytest.fixture(scope="module", autouse=True)
def nothing_left(place: Place, direct: Any) -> Iterator[None]:
    """Fail if a thread, a connection or a key is left at the end."""
    with none_left(_watcher(place), "*"):
        yield
        direct.connection_pool.disconnect()


def cases() -> list[Any]:
    """The configurations; those that take long are marked ``slow``."""
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.long else [])
        for one in CONFIGURATIONS
        if one.since <= VERSION
    ]


@pytest.mark.parametrize("configuration", cases())
async def test_locks_work_with_every_client_configuration(
    front, place, direct, name, configuration, caplog, request
):
    async with _clients(front, place, configuration) as (client, other):
        scenes = [(wait, act) for wait in WAITS for act in FOR_EACH_WAIT]
        scenes += [("queue", act) for act in ONCE]
        if request.config.getoption("-m") != "not slow":
            scenes += [(wait, renewed) for wait in WAITS]
        before = await _state(client, name)

        await _play(front, configuration, place, direct, (client, other), name, scenes)

        after = await _state(client, name)
        assert [before[-1]] * len(after[2:]) == after[2:]
        assert before[:2] == after[:2]
    left = [key for key in lasting(direct, "*") if name.encode() in key]
    if configuration.killed:  # a request whose reply was lost may leave notes, which end
        assert all(key.endswith(b":released") and direct.pttl(key) > 0 for key in left), left
        direct.delete(*left, b"no such key")
        left = []
    assert left == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= 30] == []


async def test_leases_are_renewed_with_every_client_configuration(
    front, place, direct, name, caplog
):
    """All configurations run concurrently, because each takes seconds."""
    found = [one for one in CONFIGURATIONS if one.since <= VERSION and not one.killed]

    played = []

    def hold(configuration: Configuration) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            try:
                async with _clients(front, place, configuration) as (client, other):
                    scenes = [("queue", renewed)]
                    both, own = (client, other), f"{name}:{configuration.name}"
                    await _play(front, configuration, place, direct, both, own, scenes)
                    played.append(configuration.name)
            except pytest.skip.Exception:
                pass

        return work

    results = await front.elsewhere(*map(hold, found))

    wrong = zip([one.name for one in found], results, strict=True)
    assert [(name, result) for name, result in wrong if result is not None] == []
    assert len(played) > len(found) / 2
    assert caplog.records == []


@contextlib.asynccontextmanager
async def _clients(front: Any, place: Place, configuration: Configuration) -> Any:
    """Two clients of a configuration; skip the test if redis-py itself does not work with it."""
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            client = await stack.enter_async_context(configuration.client(front, place))
            try:
                await do(client.exists("x"))
            except (redis.RedisError, UnicodeError) as error:
                pytest.skip(f"redis-py alone cannot: {error}")
            clients.append(client)
        yield clients


async def _play(
    front: Any,
    configuration: Configuration,
    place: Place,
    direct: Any,
    clients: Any,
    name: str,
    scenes: list[tuple[str, Callable[[Scene], Awaitable[None]]]],
) -> None:
    """Play scenes concurrently, each with its own lock."""
    with contextlib.ExitStack() as stack:
        database = clients[0].connection_pool.connection_kwargs.get("db") or 0
        server = stack.enter_context(_watcher(place, db=database))
        if configuration.killed:
            stack.enter_context(_dropping(direct, configuration.killed))

        def play(wait: str, act: Callable[[Scene], Awaitable[None]]) -> Any:
            own = f"{name}:ü:{wait}:{act.__name__}"
            return lambda: act(Scene(front, *clients, server, own, wait))

        results = await front.elsewhere(*[play(*scene) for scene in scenes])
    wrong = [
        (wait, act.__name__, result)
        for (wait, act), result in zip(scenes, results, strict=True)
        if result is not None
    ]
    if wrong:
        problems = [f"{wait}, {act}: {type(error).__name__}: {error}" for wait, act, error in wrong]
        raise AssertionError("\n".join(problems)) from wrong[0][2]


@contextlib.contextmanager
def _dropping(direct: Any, kind: str) -> Iterator[None]:
    """Have the server drop connections of a kind every 50 ms."""
    is_over = threading.Event()

    def drop() -> None:
        while not is_over.wait(0.05):
            direct.execute_command("CLIENT", "KILL", "TYPE", kind, "USER", "default")

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


#: The settings of a connection that its client determines.
SETTINGS = (
    "client_name",
    "credential_provider",
    "db",
    "health_check_interval",
    "lib_name",
    "lib_version",
    "protocol",
    "retry_on_error",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_timeout",
    "username",
)


async def _state(client: Any, name: str) -> list[Any]:
    """The settings of the client's own connections, and how it encodes and decodes text."""
    own = f"{name}:own"
    try:
        await do(client.set(own, "ä"))
    except redis.ConnectionError:  # the last connection that the server dropped
        await do(client.set(own, "ä"))
    texts = [await do(client.get(own)), client.get_encoder().encode("ä")]
    await do(client.delete(own))
    return [*texts, *[_settings(one) for one in _idle(client)]]


def _idle(client: Any) -> list[Any]:
    """The idle connections of the client's pool."""
    if getattr(client, "connection", None) is not None:
        return [client.connection]
    pool = client.connection_pool
    found = getattr(pool, "_available_connections", None)
    if found is None:  # a BlockingConnectionPool
        found = [one for one in pool.pool.queue if one is not None]
    return list(found)


def _settings(connection: Any) -> dict[str, Any]:
    found = {setting: getattr(connection, setting, None) for setting in SETTINGS}
    found["parser"] = type(connection._parser)
    encoder = connection.encoder
    found["encoder"] = (encoder.encoding, encoder.encoding_errors, encoder.decode_responses)
    found["retries"] = getattr(connection.retry, "_retries", None)
    sock = getattr(connection, "_sock", None)
    found["socket timeout"] = None if sock is None else sock.gettimeout()
    return found
