"""Private connections, made like those of a client's pool."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # else Python imports it to look up the first host
import inspect
from typing import Any

from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.hook_errors import mark_hook, unconverted

#: The longest wait for a reply, in seconds: half of an outage, which leaves time for another
#: attempt on another connection.
PATIENCE = OUTAGE / 2
#: The parameters of redis-py 8 for maintenance notifications, which need RESP3 and a pool.
_MAINTENANCE = ("maint_", "orig_", "oss_cluster_maint_")
#: What redis-py sends to the server about itself, in one round trip each.
_CLIENT_INFO = ("driver_info", "lib_name", "lib_version")


def made(kind: Any, parameters: dict[str, Any]) -> Any:
    """A connection like those of a pool, not open yet.

    It uses RESP2, where messages are plain replies and opening takes one round trip less. It never
    sends a PING on its own, whose reply would be read as that of another command. Opening it is
    attempted once. While it is opened, the program's hooks read replies as the client decodes them;
    afterwards replies are read past it or as bytes (``stop_decoding``).
    """
    own = {name: value for name, value in parameters.items() if not name.startswith(_MAINTENANCE)}
    try:
        connection = kind(**{**own, "protocol": 2})
    except TypeError:  # before redis-py 5 there was no other
        connection = kind(**own)
    _name_default_user(connection, own.get("protocol"))
    connection.health_check_interval = 0
    for name in _CLIENT_INFO:
        if hasattr(connection, name):
            setattr(connection, name, None)
    if hasattr(connection, "retry"):  # not before redis-py 4
        connection.retry = once(connection)
    return connection


def _name_default_user(connection: Any, protocol: Any) -> None:
    """Give the default user's name with a password, as the client does that speaks RESP3.

    A server whose default user needs no password accepts any one then, but not without a name.
    """
    if protocol is None:
        module = client_errors.part_of(connection, "connection")
        protocol = getattr(module, "DEFAULT_RESP_VERSION", 2)
    if str(protocol) != "3":
        return
    provider: Any = getattr(connection, "credential_provider", None)
    if type(provider).__name__ == "UsernamePasswordCredentialProvider":
        if provider.password and not provider.username:
            connection.credential_provider = type(provider)("default", provider.password)
    elif provider is None and getattr(connection, "password", None):
        connection.username = connection.username or "default"


def opened(kind: Any, parameters: dict[str, Any], until: float) -> Any:
    """A connection like those of a blocking client's pool, opened by ``until`` in one attempt.

    If that fails, the error is marked as unsent: no request was sent.
    """
    connection = made(kind, parameters)
    patience = min(connection.socket_timeout or PATIENCE, PATIENCE)
    try:
        limit_steps(connection, min(PATIENCE, max(0.001, until - monotonic())))
        connection.connect()
    except BaseException as error:
        connection.disconnect()
        found = unconverted(error)
        client_errors.mark_caught(mark_hook(found))
        try:
            if found is not error:  # a signal handler's
                raise found from found.__cause__
            raise
        finally:
            del found  # its traceback refers to this frame: a reference cycle
    connection.socket_timeout = patience
    return connection


def stop_decoding(connection: Any) -> None:
    """Have an open connection return texts as bytes: a value or message may be no text."""
    connection.encoder.decode_responses = False
    connection._parser.on_connect(connection)  # hiredis reads the setting only there


def limit_steps(connection: Any, seconds: float) -> None:
    """Limit each step of opening a connection to so many seconds, or less if its client does."""
    for limit in ("socket_timeout", "socket_connect_timeout"):
        if hasattr(connection, limit):  # a Unix socket lacks the second
            setattr(connection, limit, min(getattr(connection, limit) or seconds, seconds))


def once(connection: Any) -> Any:
    """A retry policy of one attempt: the flows retry, and know for how long."""
    is_async = inspect.iscoroutinefunction(connection.connect)
    retry = client_errors.part_of(connection, "asyncio.retry" if is_async else "retry")
    return retry.Retry(client_errors.part_of(connection, "backoff").NoBackoff(), 0)
