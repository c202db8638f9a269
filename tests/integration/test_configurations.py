"""Every option of a client that changes bytes, connections or errors: locks work all the same.

A new option is a line in ``support.configurations``, a new thing to be done with a lock a scene
here.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from support.configurations import CONFIGURATIONS, VERSION, Configuration, Place
from support.fronts import do
from support.leftovers import TIDY_FRONTS, lasting, none_left, until
from support.tls import TlsFront

import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.lock
from redis_lock_decorators import LockLostError, LockTimeoutError
from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS
WAITS = ("queue", "cohort", "poll")
METHODS = ("script", "transaction", "native")
#: Seconds that anybody waits for a lock that must come.
LONG = 30.0
#: A value that is no text in any encoding of the table but Latin-1.
STRANGER = b"\xff\xfe\x80"
SECURITY = Path(__file__).parents[2] / "SECURITY.rst"
RIGHTS = re.findall(r"``([A-Z|]+)``", SECURITY.read_text().partition("ACL must allow")[2])


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A server that can be reached in every way."""
    # A short path: that of a socket may have some hundred letters.
    with tempfile.TemporaryDirectory(prefix="rld") as folder:
        path = f"{folder}/socket"
        with LocalServer("--unixsocket", path) as server, TlsFront(server, Path(folder)) as front:
            _allow(server.client())
            yield Place(server.host, server.port, path, front.port, front.authority)


def _allow(client: Any) -> None:
    """A user that may do what SECURITY.rst lists, and one whose connections stay."""
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
    """A client to look at what happened."""
    with _watcher(place) as client:
        client.ping()  # its connection is here from the start
        yield client


@pytest.fixture(scope="module", autouse=True)
def nothing_left(place: Place, direct: Any) -> Iterator[None]:
    """Fail if a thread, a connection or a key is left at the end."""
    with none_left(_watcher(place), "*"):
        yield
        direct.connection_pool.disconnect()


@dataclass
class Scene:
    """What is done with the locks of one configuration in one way of waiting.

    Attributes:
        client, other: two clients that are set up alike.
        server: a plain client of the same database.
    """

    front: Any
    client: Any
    other: Any
    server: Any
    name: str
    wait: str

    def lock(self, client: Any = None, **options: Any) -> Any:
        kind = self.front.package.RedisLock
        options = {"wait": self.wait, "acquire_time": LONG, "expire": LONG, **options}
        return kind(self.name, client=client or self.client, **options)

    @property
    def key(self) -> bytes:
        return f"sys:lock:{self.name}".encode()


async def alone(scene: Scene) -> None:
    """One holder, whom all others are refused for; released, the key is gone."""
    async with scene.front.held(scene.lock()) as lease:
        assert scene.server.get(scene.key) == lease.identifier.encode()
        assert await do(lease.extend(2 * LONG)) is True
        assert await do(lease.owned()) is True
        assert await do(scene.lock().owner()) == lease.identifier

        async def want() -> None:
            other = scene.lock(scene.other)
            assert await tried(lambda: other.acquire(blocking=False)) is None
            with pytest.raises(LockTimeoutError):
                async with scene.front.held(scene.lock(scene.other, acquire_time=0.3)):
                    pass

        await together(scene, want)
    assert not scene.server.exists(scene.key)


async def wanted_by_many(scene: Scene) -> None:
    """Two clients' waiters enter one at a time, the first of them after a stranger."""
    inside, entered = [], []
    scene.server.set(scene.key, STRANGER, px=100)

    def waiter(client: Any) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            async with scene.front.held(scene.lock(client)):
                inside.append(1)
                await scene.front.sleep(0.01)
                assert len(inside) == 1
                entered.append(inside.pop())

        return work

    await together(scene, *[waiter(client) for client in (scene.client, scene.other) * 3])
    assert len(entered) == 6


async def renewed(scene: Scene) -> None:
    """A block outlasts its lease; nobody else enters."""
    async with scene.front.held(scene.lock(expire=1.5)) as lease:
        for _ in range(8):
            await scene.front.sleep(0.25)
            assert scene.server.get(scene.key) == lease.identifier.encode()
        lease.check()


async def lost(scene: Scene) -> None:
    """The key is deleted: the holder is told, in the block and at its end."""
    told: list[Any] = []
    with pytest.raises(LockLostError):
        async with scene.front.held(
            scene.lock(expire=0.5, on_lost=lambda lease, why: told.append(why))
        ):
            scene.server.delete(scene.key)
            await until(scene.front, lambda: told, lambda: "the loss was not told")
    await until(scene.front, lambda: told, lambda: "the loss was not told")


async def by_functions(scene: Scene) -> None:
    """The three functions, and each way of letting go."""
    package, client = scene.front.package, scene.client
    for method in METHODS:
        name = f"{scene.name}:{method}"
        identifier = await do(package.acquire_lock(client, name, 5, LONG))
        assert identifier
        assert await do(package.acquire_lock(client, name, 0)) is False
        assert await do(package.extend_lock(client, name, identifier, LONG)) is True
        assert await do(package.release_lock(client, name, "no", method=method)) is False
        assert await do(package.release_lock(client, name, identifier, method=method)) is True
        assert not scene.server.exists(f"sys:lock:{name}")


async def by_every_method(scene: Scene) -> None:
    """A lock that goes from hand to hand, whichever way it is let go."""
    for method in METHODS:
        scene.name += method

        async def one(client: Any = None, method: str = method) -> None:
            async with scene.front.held(scene.lock(client, release_method=method)):
                await scene.front.sleep(0.01)

        await together(scene, one, lambda one=one: one(scene.other), one)


async def in_place_of_redis_py(scene: Scene) -> None:
    """redis-py's own ``lock``, with our class."""
    package = redis_lock_decorators
    is_blocking = scene.front.name == "blocking"
    kind = (package.lock if is_blocking else package.asyncio.lock).Lock
    key = await _as_sent(scene.other, scene.server, scene.name)
    scene.server.set(key, STRANGER)
    lock = scene.client.lock(scene.name, timeout=LONG, lock_class=kind)

    assert await tried(lambda: lock.acquire(blocking=False)) is False
    scene.server.pexpire(key, 100)
    assert await do(lock.acquire(blocking_timeout=LONG))
    assert await do(lock.owned())
    assert await do(lock.extend(5))
    assert await do(lock.locked())
    await do(lock.release())

    assert not scene.server.exists(key)


async def tried(attempt: Callable[[], Any]) -> Any:
    """What a single try gives; a busy machine may use up its second before it has connected."""
    end = time.monotonic() + LONG
    while True:
        try:
            return await do(attempt())
        except redis.TimeoutError:
            if time.monotonic() > end:
                raise


async def _as_sent(client: Any, server: Any, name: str) -> bytes:
    """The key that redis-py makes of a name, so that its own locks and ours exclude each other.

    That depends: hiredis writes UTF-8 whatever the client's ``encoding``.
    """
    for key in (name.encode(), client.get_encoder().encode(name)):
        server.set(key, "x")
        is_there = await do(client.exists(name))
        server.delete(key)
        if is_there:
            return key
    raise AssertionError("the client looks for another key")


async def together(scene: Scene, *works: Callable[[], Awaitable[Any]]) -> None:
    """Do works at the same time; the first error is raised."""
    for result in await scene.front.elsewhere(*works):
        if isinstance(result, BaseException):
            raise result


#: What is done for each way of waiting, and what once.
FOR_EACH_WAIT = (alone, wanted_by_many, lost)
ONCE = (by_functions, by_every_method, in_place_of_redis_py)


def cases() -> list[Any]:
    """The table, with what takes long among the slow tests."""
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.long else [])
        for one in CONFIGURATIONS
        if one.since <= VERSION
    ]


@pytest.mark.parametrize("configuration", cases())
async def test_locks_work_whatever_the_client(
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


async def test_leases_are_renewed_whatever_the_client(front, place, direct, name, caplog):
    """Of all in one go, for it takes its time."""
    found = [one for one in CONFIGURATIONS if one.since <= VERSION and not one.killed]

    def hold(configuration: Configuration) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            try:
                async with _clients(front, place, configuration) as (client, other):
                    scenes = [("queue", renewed)]
                    both, own = (client, other), f"{name}:{configuration.name}"
                    await _play(front, configuration, place, direct, both, own, scenes)
            except pytest.skip.Exception:
                pass

        return work

    results = await front.elsewhere(*map(hold, found))

    wrong = zip([one.name for one in found], results, strict=True)
    assert [(name, result) for name, result in wrong if result is not None] == []
    assert caplog.records == []


@contextlib.asynccontextmanager
async def _clients(front: Any, place: Place, configuration: Configuration) -> Any:
    """Two clients that are set up so; skip where that does not work for the client alone."""
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
    """Play scenes at the same time, each with a lock of its own."""
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
        told = [f"{wait}, {act}: {type(error).__name__}: {error}" for wait, act, error in wrong]
        raise AssertionError("\n".join(told)) from wrong[0][2]


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


#: What a connection is told by its client, or keeps for it.
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
    """How the client's own connections are set up, and what its own texts become."""
    own = f"{name}:own"
    await do(client.set(own, "ä"))
    said = [await do(client.get(own)), client.get_encoder().encode("ä")]
    await do(client.delete(own))
    return [*said, *[_settings(one) for one in _idle(client)]]


def _idle(client: Any) -> list[Any]:
    """The connections that the client could use next."""
    if getattr(client, "connection", None) is not None:
        return [client.connection]
    pool = client.connection_pool
    found = getattr(pool, "_available_connections", None)
    if found is None:  # a waiting pool's, of blocking clients
        found = [one for one in pool.pool.queue if one is not None]
    return list(found)


def _settings(connection: Any) -> dict[str, Any]:
    found = {setting: getattr(connection, setting, None) for setting in SETTINGS}
    found["parser"] = type(connection._parser)
    encoder = connection.encoder
    found["encoder"] = (encoder.encoding, encoder.encoding_errors, encoder.decode_responses)
    found["retries"] = getattr(connection.retry, "_retries", None)
    sock = getattr(connection, "_sock", None)
    found["of its socket"] = None if sock is None else sock.gettimeout()
    return found
