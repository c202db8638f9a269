"""Make a client from a URL or from the environment.

No message contains a URL, which may hold a password.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import click
import redis
import six

from redis_lock_decorators._io.environment import DEFAULT_URL, from_environment
from redis_lock_decorators.errors import ConfigurationError

#: Seconds for each reply; a URL may set another: ``redis://localhost?socket_timeout=20``.
TIMEOUT = 5.0
FORMS = (
    "redis://[user:password@]host[:port][/db], rediss://… (TLS), unix://path, "
    "redis+cluster://host[:port][,host[:port]…], redis+sentinel://host[:port][,…]/service[/db] "
    "(rediss+cluster and rediss+sentinel with TLS)"
)
SENTINEL_PORT = 26379
#: It is no RedisError, and redis-py 3.5 does not have it.
CLUSTER_ERROR: Any = getattr(redis.exceptions, "RedisClusterException", ())


def connected(url: str | None, timeout: float = TIMEOUT) -> Any:
    """Return the client of a URL, or of ``REDIS_LOCK_CONNECTION`` or ``REDIS_URL``.

    A plain URL of a cluster node gives a client of the whole cluster. Where the URL or the function
    does not say otherwise, each reply must arrive within ``timeout`` seconds.

    Raises:
        click.UsageError: the URL has no known form, or options that the client does not have.
        ConfigurationError: the function cannot be found, fails, or returns no blocking client.
        redis.RedisError: the server does not answer or refuses the user.
    """
    if url is None and os.environ.get("REDIS_LOCK_CONNECTION"):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # a project that is not installed
        return _from_function()
    timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    return _from_url(url or os.environ.get("REDIS_URL") or DEFAULT_URL, timeouts)


def _from_function() -> Any:
    try:
        return from_environment()
    except (ConfigurationError, redis.RedisError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={os.environ['REDIS_LOCK_CONNECTION']!r}: it raised "
            f"{type(error).__name__} (the text is not shown: it may hold a password)"
        ) from None


def _from_url(url: str, timeouts: dict[str, float]) -> Any:
    try:
        return _client_of(url, timeouts)
    except CLUSTER_ERROR:
        raise
    except (click.UsageError, redis.RedisError, OSError):
        raise
    except Exception:  # without the cause, which may quote the URL
        raise click.UsageError(
            f"the URL, or an option in it, is not known; known forms are {FORMS}"
        ) from None


def _client_of(url: str, timeouts: dict[str, float]) -> Any:
    parts = urlsplit(url)
    secure, _, kind = parts.scheme.partition("+")
    makers: dict[str, Callable[[SplitResult, dict[str, Any]], Any]] = {
        "cluster": _cluster,
        "sentinel": _sentinel,
    }
    if secure not in ("redis", "rediss", "unix") or (kind and kind not in makers):
        raise ValueError("an unknown scheme")
    if kind:
        return makers[kind](parts, _options(parts, secure == "rediss", timeouts))
    return _plain(url, timeouts)


def _plain(url: str, timeouts: dict[str, Any]) -> Any:
    client = redis.Redis.from_url(url, **timeouts)
    mode = _mode(client)
    if mode == "cluster":
        client.close()
        return redis.RedisCluster.from_url(url, **timeouts)
    if mode == "sentinel":
        raise click.UsageError(
            "this is a Sentinel, not a server: write redis+sentinel://host:port/service"
        )
    return client


def _mode(client: Any) -> str:
    """Ask for the kind of server by HELLO, the only such request that needs no permission."""
    reply = client.execute_command("HELLO")
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    found = {six.ensure_str(name): value for name, value in pairs}
    return str(six.ensure_str(found["mode"]))


def _cluster(parts: SplitResult, options: dict[str, Any]) -> Any:
    node: Any = redis.cluster.ClusterNode  # without types
    nodes = [node(host, port) for host, port in _hosts(parts, 6379)]
    return redis.RedisCluster(startup_nodes=nodes, **options)


def _sentinel(parts: SplitResult, options: dict[str, Any]) -> Any:
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    watchers = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    shared = {name: value for name, value in options.items() if name.startswith(("ssl", "socket"))}
    kind: Any = redis.Sentinel  # without types
    sentinel = kind(_hosts(parts, SENTINEL_PORT), sentinel_kwargs={**watchers, **shared}, **options)
    client = sentinel.master_for(unquote(service), db=int(db or 0))
    _mode(client)  # options are used with the first connection only
    return client


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for one in parts.netloc.rpartition("@")[2].split(","):
        host = urlsplit(f"//{one}")
        hosts.append((host.hostname or "localhost", host.port or default_port))
    return hosts


def _options(parts: SplitResult, secure: bool, timeouts: dict[str, float]) -> dict[str, Any]:
    """The options of a client: credentials, and what the query has, as redis-py reads it."""
    options: dict[str, Any] = dict(timeouts)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    if secure:
        options["ssl"] = True
    parsers: Any = redis.connection.URL_QUERY_ARGUMENT_PARSERS
    for name, value in parse_qsl(parts.query):
        options[name] = parsers.get(name, str)(value)
    return options
