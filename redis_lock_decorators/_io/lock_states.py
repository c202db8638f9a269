"""Requests that read the state of locks, by any blocking client of redis-py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import six
from redis.exceptions import ResponseError

from redis_lock_decorators._io.client_methods import undecoded
from redis_lock_decorators._io.unconfigured import drop_unconfigured

#: How many keys one SCAN looks at: a server needs well below 1 ms for it.
PAGE = 1_000
#: The reply to PTTL for a key that does not exist.
GONE = -2
#: In place of the reply for a key with another type of data.
OTHER = object()


def pages(client: Any, match: bytes) -> Iterator[list[bytes]]:
    """Yield the keys that match, by SCAN on every primary node."""
    for node in _primaries(client):
        chosen: dict[str, Any] = {} if node is None else {"target_nodes": node}
        chosen |= undecoded(client)  # a key may be no text
        cursor: Any = 0
        while True:
            with _dropping_unconfigured(client):
                cursor, page = client.scan(cursor, match=match, count=PAGE, **chosen)
            if isinstance(cursor, dict):  # redis-py reports the cursor of each node
                (cursor,) = cursor.values()
            yield [as_bytes(key) for key in dict.fromkeys(page)]
            if int(cursor) == 0:
                break


def _primaries(client: Any) -> list[Any]:
    """The nodes to be scanned; [None] for a client of one server."""
    return client.get_primaries() if hasattr(client, "get_primaries") else [None]


def together(client: Any, commands: list[tuple[Any, ...]]) -> Iterator[Any]:
    """Send commands at once; yield the replies, with OTHER for a key of another type.

    Raises:
        redis.exceptions.RedisError: the server refuses a command or does not answer.
    """
    pipeline, options = client.pipeline(transaction=False), undecoded(client)
    for command in commands:
        pipeline.execute_command(*command, **options)
    with _dropping_unconfigured(client):
        replies = pipeline.execute(raise_on_error=False)
    return map(_unless_other_data, replies)


@contextmanager
def _dropping_unconfigured(client: Any) -> Iterator[None]:
    """Leave the client's pool in order if its method is interrupted: locks may use it next."""
    try:
        yield
    except BaseException as error:
        drop_unconfigured(client, error)
        raise


def _unless_other_data(reply: Any) -> Any:
    """Return a reply, OTHER if the key has another type; raise any other error."""
    if not isinstance(reply, Exception):
        return reply
    if isinstance(reply, ResponseError) and "WRONGTYPE" in str(reply):
        return OTHER
    raise reply


def scored(found: Any) -> Iterable[tuple[Any, Any]]:
    """Return the members and scores of a sorted set: RESP3 has pairs, RESP2 a flat list."""
    if found and isinstance(found[0], (list, tuple)):
        return [tuple(pair) for pair in found]
    return zip(found[::2], found[1::2], strict=True)


def as_bytes(value: Any) -> bytes:
    """Return a reply as bytes, also if the client decodes replies."""
    found: bytes = six.ensure_binary(value, errors="surrogateescape")
    return found


def as_text(value: Any) -> str:
    """Return a reply as text; bytes that are not UTF-8 become surrogates."""
    found: str = six.ensure_str(value, errors="surrogateescape")
    return found
