"""A table of client configurations as users set them up."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry
from redis.credentials import UsernamePasswordCredentialProvider

from support.fronts import do, wrap

#: The modules of redis-py for each front.
MODULES: dict[str, Any] = {"blocking": redis, "asyncio": redis.asyncio}
VERSION = int(redis.__version__.partition(".")[0])


@dataclass(frozen=True)
class Place:
    """The addresses of one server.

    Attributes:
        path: its Unix socket.
        tls: its port for TLS.
        authority: the CA file that verifies its certificate.
    """

    host: str
    port: int
    path: str
    tls: int
    authority: str


@dataclass(frozen=True)
class Configuration:
    """One configuration of a client.

    Attributes:
        options: the arguments of the client, or a function that makes them from redis-py's module.
        transport: how the server is reached: "tcp", "unix" or "tls".
        pool: the class of its pool; "" leaves that to the client.
        wrapped: its ``execute_command`` is wrapped, as a tracer does.
        killed: the type of connections that the server drops every 50 ms.
        long: it is tested with the slow tests only.
        since: the first redis-py version that supports it.
    """

    name: str
    options: dict[str, Any] | Callable[[Any], dict[str, Any]]
    transport: str = "tcp"
    pool: str = ""
    wrapped: bool = False
    killed: str = ""
    long: bool = False
    since: int = 5

    @contextlib.asynccontextmanager
    async def client(self, front: Any, place: Place) -> AsyncIterator[Any]:
        """A client of the front's kind, closed at the end with its pool."""
        module = MODULES[front.name]
        options = dict(self.options(module) if callable(self.options) else self.options)
        client = self._made(module, self._address(module, place), options)
        pool = client.connection_pool
        if self.wrapped:
            wrap(client)
        try:
            yield client
        finally:
            if front.name == "asyncio":
                await client.aclose()
            else:
                client.close()
            await do(pool.disconnect())

    def _made(self, module: Any, address: dict[str, Any], options: dict[str, Any]) -> Any:
        if not self.pool:
            return module.Redis(**address, **options)
        pool = getattr(module, self.pool)(**address, **options)
        return module.Redis(connection_pool=pool)

    def _address(self, module: Any, place: Place) -> dict[str, Any]:
        if self.transport == "tls":
            safe = {"ssl_ca_certs": place.authority, "ssl_check_hostname": True}
            kind = {"connection_class": module.SSLConnection} if self.pool else {"ssl": True}
            return {"host": place.host, "port": place.tls, **kind, **safe}
        if self.transport == "unix" and self.pool:
            return {"connection_class": module.UnixDomainSocketConnection, "path": place.path}
        if self.transport == "unix":
            return {"unix_socket_path": place.path}
        return {"host": place.host, "port": place.port}


def _retries(count: int, *errors: type[Exception]) -> Callable[[Any], dict[str, Any]]:
    """The client itself repeats requests, also after these errors."""

    def options(module: Any) -> dict[str, Any]:
        kind = redis.asyncio.retry.Retry if module is redis.asyncio else redis.retry.Retry
        return {"retry": kind(redis.backoff.NoBackoff(), count), "retry_on_error": list(errors)}

    return options


def _credentials(module: Any) -> dict[str, Any]:
    return {"credential_provider": redis.UsernamePasswordCredentialProvider("limited", "any")}


def _nameless(module: Any) -> dict[str, Any]:
    return {"driver_info": None} if VERSION >= 8 else {"lib_name": None, "lib_version": None}


def _opened_by_hook(world: Any) -> dict[str, Any]:
    """The program's own function reads a reply when a connection is opened."""

    def confirm(reply: object) -> None:
        if reply != "OK":
            raise redis.ConnectionError(f"CLIENT SETNAME: {reply!r}")

    def hook(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "SETNAME", "an_app")
        confirm(connection.read_response())

    async def async_hook(connection: Any) -> None:
        await connection.on_connect()
        await connection.send_command("CLIENT", "SETNAME", "an_app")
        confirm(await connection.read_response())

    is_asyncio = world is redis.asyncio
    return {"redis_connect_func": async_hook if is_asyncio else hook, "decode_responses": True}


class NamedConnection(redis.Connection):
    """A user's connection class."""


class AsyncNamedConnection(redis.asyncio.Connection):
    """The same for asyncio."""


def _own_kind(module: Any) -> dict[str, Any]:
    is_asyncio = module is redis.asyncio
    return {"connection_class": AsyncNamedConnection if is_asyncio else NamedConnection}


def _texts() -> list[Configuration]:
    """Combinations of encoding, decoding and protocol."""
    found = []
    for encoding, decode, protocol, wrapped in itertools.product(
        ("utf-8", "latin-1", "utf-16"), (False, True), (2, 3), (False, True)
    ):
        options = {"encoding": encoding, "decode_responses": decode, "protocol": protocol}
        words = [encoding, "decoded"[: 7 * decode], f"resp{protocol}", "wrapped"[: 7 * wrapped]]
        name = " ".join(filter(None, words))
        # Decoding clients are the most error-prone; the others differ from them in one option.
        is_long = not decode or (protocol == 3) is not (encoding == "utf-8")
        found.append(Configuration(name, options, wrapped=wrapped, long=is_long))
    return found


USER = {"username": "limited", "password": "any"}
GIVEN = UsernamePasswordCredentialProvider(None, USER["password"])
SMALL = {"max_connections": 1}
DROPPED = {"socket_timeout": 5}

CONFIGURATIONS = [
    Configuration("plain", {}),
    *_texts(),
    Configuration("one connection", {"single_connection_client": True}),
    Configuration("one connection, wrapped", {"single_connection_client": True}, wrapped=True),
    Configuration(
        "one connection utf-16",
        {"single_connection_client": True, "encoding": "utf-16", "protocol": 2},
    ),
    Configuration(
        "decoded, errors ignored",
        {"decode_responses": True, "encoding_errors": "ignore"},
        long=True,
    ),
    Configuration("pool of one", SMALL, pool="ConnectionPool"),
    Configuration("pool of two", {"max_connections": 2}, pool="ConnectionPool", long=True),
    Configuration("pool of twenty", {"max_connections": 20}, pool="ConnectionPool", long=True),
    Configuration("waiting pool of one", {**SMALL, "timeout": 20}, pool="BlockingConnectionPool"),
    Configuration(
        "impatient pool of one", {**SMALL, "timeout": 5}, pool="BlockingConnectionPool", long=True
    ),
    Configuration("waiting pool", {}, pool="BlockingConnectionPool", long=True),
    Configuration(
        "waiting pool of one, unix",
        SMALL,
        transport="unix",
        pool="BlockingConnectionPool",
        long=True,
    ),
    Configuration("health check", {"health_check_interval": 1}),
    Configuration(
        "health check, one connection",
        {"health_check_interval": 1, "single_connection_client": True},
    ),
    Configuration("tiny time-out", {"socket_timeout": 0.05}),
    Configuration("tiny time-out, unix", {"socket_timeout": 0.05}, transport="unix", long=True),
    Configuration(
        "short time-out, TLS",  # redis-py's handshake counts against it
        {"socket_timeout": 0.5, "socket_connect_timeout": 5},
        transport="tls",
        long=True,
    ),
    Configuration("tiny time-out, wrapped", {"socket_timeout": 0.05}, wrapped=True, long=True),
    Configuration("whole time-outs", {"socket_timeout": 1, "socket_connect_timeout": 1}, long=True),
    Configuration("no time-out", {"socket_timeout": None, "socket_connect_timeout": None}),
    Configuration("no retries", _retries(0), long=True),
    Configuration(
        "retries of more",
        _retries(3, redis.ConnectionError, redis.TimeoutError, redis.ResponseError),
    ),
    Configuration("retries of more, wrapped", _retries(3, redis.ResponseError), wrapped=True),
    Configuration("unix socket", {}, transport="unix"),
    Configuration("TLS", {}, transport="tls"),
    Configuration(
        "TLS, one connection", {"single_connection_client": True}, transport="tls", long=True
    ),
    Configuration(
        "TLS, decoded resp3 pool",
        {"decode_responses": True, "protocol": 3, **SMALL},
        transport="tls",
        pool="ConnectionPool",
        long=True,
    ),
    Configuration("database 3", {"db": 3}),
    Configuration("database 3, utf-16", {"db": 3, "encoding": "utf-16", "protocol": 2}, long=True),
    Configuration("user", USER),
    Configuration("needless password", {"password": "any", "protocol": 3}),
    Configuration("needless password of a provider", {"credential_provider": GIVEN, "protocol": 3}),
    Configuration("user resp2", {**USER, "protocol": 2}, long=True),
    Configuration("user by provider", _credentials, long=True),
    Configuration(
        "user by provider resp3", lambda module: {**_credentials(module), "protocol": 3}, long=True
    ),
    Configuration("named", {"client_name": "an_app"}, long=True),
    Configuration("no library name", _nameless, long=True),
    Configuration("small reads", {"socket_read_size": 1}, pool="ConnectionPool"),
    Configuration("keep-alive", {"socket_keepalive": True}, long=True),
    Configuration("own hook, decoded", _opened_by_hook),
    Configuration("own kind of connection", _own_kind, pool="ConnectionPool"),
    Configuration("dropped", DROPPED, killed="normal"),
    Configuration(
        "dropped, decoded resp3",
        {**DROPPED, "decode_responses": True, "protocol": 3},
        killed="normal",
        long=True,
    ),
    Configuration(
        "dropped, pool of one",
        {**DROPPED, **SMALL},
        pool="ConnectionPool",
        killed="normal",
        long=True,
    ),
    Configuration(
        "dropped, one connection",
        {**DROPPED, "single_connection_client": True},
        killed="normal",
        long=True,
    ),
    Configuration("dropped listeners", DROPPED, killed="pubsub"),
]
