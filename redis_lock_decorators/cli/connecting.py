"""Make a client from a URL or from the environment.

No message contains a URL, which may hold a password.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import click
import redis
import six

DEFAULT_URL = "redis://localhost:6379/0"
#: Seconds; a URL may set other values: ``redis://localhost?socket_timeout=20``.
TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
FORMS = (
    "redis://[user:password@]host[:port][/db], rediss://… (TLS), unix://path, "
    "redis+cluster://host[:port][,host[:port]…], redis+sentinel://host[:port][,…]/service[/db] "
    "(rediss+cluster and rediss+sentinel with TLS)"
)
SENTINEL_PORT = 26379


def connected(url: str | None) -> Any:
    """Return the client of a URL, or of ``REDIS_LOCK_CONNECTION`` or ``REDIS_URL``.

    A plain URL of a cluster node gives a client of the whole cluster.

    Raises:
        click.UsageError: the URL has no known form.
        redis.RedisError: the server does not answer or refuses the user.
    """
    named = os.environ.get("REDIS_LOCK_CONNECTION")
    if url is None and named:
        return _from_factory(named)
    return _from_url(url or os.environ.get("REDIS_URL") or DEFAULT_URL)


def _from_factory(named: str) -> Any:
    module_name, _, attribute = named.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)()
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(
            f"REDIS_LOCK_CONNECTION={named!r}: {error}; write it as package.module:function"
        ) from error


def _from_url(url: str) -> Any:
    parts = urlsplit(url)
    secure, _, kind = parts.scheme.partition("+")
    makers: dict[str, Callable[[SplitResult, bool], Any]] = {
        "cluster": _cluster,
        "sentinel": _sentinel,
    }
    if secure not in ("redis", "rediss", "unix") or (kind and kind not in makers):
        raise click.UsageError(f"the URL has no known form; known are {FORMS}")
    try:
        if kind:
            return makers[kind](parts, secure == "rediss")
        return _plain(url)
    except ValueError:  # without the cause, which may quote the URL
        raise click.UsageError(f"the URL cannot be read; known forms are {FORMS}") from None


def _plain(url: str) -> Any:
    client = redis.Redis.from_url(url, **TIMEOUTS)
    mode = _mode(client)
    if mode == "cluster":
        client.close()
        return redis.RedisCluster.from_url(url, **TIMEOUTS)
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


def _cluster(parts: SplitResult, secure: bool) -> Any:
    node: Any = redis.cluster.ClusterNode  # without types
    nodes = [node(host, port) for host, port in _hosts(parts, 6379)]
    return redis.RedisCluster(startup_nodes=nodes, **_options(parts, secure))


def _sentinel(parts: SplitResult, secure: bool) -> Any:
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    options = _options(parts, secure)
    watchers = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    watchers.update(TIMEOUTS, **({"ssl": True} if secure else {}))
    kind: Any = redis.Sentinel  # without types
    sentinel = kind(_hosts(parts, SENTINEL_PORT), sentinel_kwargs=watchers, **options)
    return sentinel.master_for(unquote(service), db=int(db or 0))


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for one in parts.netloc.rpartition("@")[2].split(","):
        host = urlsplit(f"//{one}")
        hosts.append((host.hostname or "localhost", host.port or default_port))
    return hosts


def _options(parts: SplitResult, secure: bool) -> dict[str, Any]:
    """The options of a client: credentials, and what the query has, numbers as numbers."""
    options: dict[str, Any] = dict(TIMEOUTS)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    if secure:
        options["ssl"] = True
    for name, value in parse_qsl(parts.query):
        options[name] = float(value) if value.replace(".", "", 1).isdigit() else value
    return options
