"""Read the state of locks: which are held, for how long yet, and who waits.

Nothing here changes a lock. The figures are those of one moment; another process may change them
before they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import six

from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.keys import checked_names, companion, is_companion, key_of
from redis_lock_decorators._rules.permissions import key_pattern

__all__ = ["LockStatus", "Waiter", "find_locks", "lock_status", "waiters"]

#: How many keys one SCAN looks at: a server needs well below 1 ms for it.
PAGE = 1_000
DEFAULT_PREFIX = "sys:lock:"


@dataclass(frozen=True, slots=True)
class LockStatus:
    """One lock as it was found.

    Attributes:
        lock_name: the name, without the prefix.
        key: the Redis key.
        identifier: the identifier of the holder; None if the lock is free.
        remaining: seconds until the lease ends unless it is renewed; None if the lock is free or
            has no time to live.
        fence: the last fencing token, if the lock has any.
        waiting: how many queue entries wait for it. A cohort has one entry for a whole process;
            waiters that poll have none.
        head: the ticket of the first entry of the queue; it grows with each hand-over.
    """

    lock_name: str
    key: str
    identifier: str | None
    remaining: float | None
    fence: int | None
    waiting: int
    head: int | None

    @property
    def is_held(self) -> bool:
        """Whether the lock had a holder."""
        return self.identifier is not None


@dataclass(frozen=True, slots=True)
class Waiter:
    """An entry in the queue of a lock.

    Attributes:
        identifier: the identifier that will be the holder's when the lock is granted.
        channel: the pub/sub channel of the waiting process, which all its waiters share.
        ticket: the entries are served in the order of their tickets.
    """

    identifier: str
    channel: str
    ticket: int


def find_locks(
    client: BlockingClient,
    pattern: str = "*",
    *,
    prefix: str = DEFAULT_PREFIX,
) -> Iterator[list[LockStatus]]:
    """Find the locks that are held, a page at a time, in no particular order.

    SCAN is used, on every primary node of a cluster, so the server is never blocked for long, and
    only one page is kept in memory. A lock that is acquired or released meanwhile may be missing,
    and one may be reported twice.

    Args:
        client: the Redis client.
        pattern: of the names, as the server's ``SCAN`` has it: ``*``, ``?``, ``[ab]``.
        prefix: the text before the name in the Redis key.

    Yields:
        pages with one lock or more.
    """
    match = key_pattern(prefix)[:-1] + pattern
    for page in _pages(client, match):
        keys = [key for key in page if not is_companion(key)]
        found = [status for status in _statuses(client, keys, prefix) if status.is_held]
        if found:
            yield found


def lock_status(
    client: BlockingClient, lock_name: str, *, prefix: str = DEFAULT_PREFIX
) -> LockStatus:
    """Return the state of one lock, held or free.

    Raises:
        LockNameError: the name is empty or not text.
    """
    (name,) = checked_names(lock_name)
    key = key_of(prefix, name)
    found = next(_statuses(client, [key], prefix), None)
    return found or LockStatus(name, _text(key), None, None, None, 0, None)


def waiters(
    client: BlockingClient, lock_name: str, *, prefix: str = DEFAULT_PREFIX, count: int = 100
) -> list[Waiter]:
    """Return the first entries of a lock's queue, in the order in which they will be served.

    Args:
        client: the Redis client.
        lock_name: the name of the lock.
        prefix: the text before the name in the Redis key.
        count: how many entries at most.

    Raises:
        LockNameError: the name is empty or not text.
    """
    (name,) = checked_names(lock_name)
    queue = companion(key_of(prefix, name), b"queue")
    found = client.execute_command("ZRANGE", queue, 0, count - 1, "WITHSCORES")
    return list(
        map(_waiter, found if found and isinstance(found[0], (list, tuple)) else _pairs(found))
    )


def _pairs(flat: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _waiter(found: tuple[Any, Any]) -> Waiter:
    entry, ticket = found
    channel, identifier, *_ = _text(entry).split("|")
    return Waiter(identifier, channel, int(float(ticket)))


def _pages(client: Any, match: str) -> Iterator[list[bytes]]:
    for node in _primaries(client):
        chosen = {} if node is None else {"target_nodes": node}
        cursor: Any = 0
        while True:
            cursor, page = client.scan(cursor, match=match, count=PAGE, **chosen)
            if isinstance(cursor, dict):  # redis-py reports the cursor of each node
                (cursor,) = cursor.values()
            yield [_bytes(key) for key in dict.fromkeys(page)]
            if int(cursor) == 0:
                break


def _primaries(client: Any) -> list[Any]:
    """The nodes to be scanned; [None] for a client of one server."""
    return client.get_primaries() if hasattr(client, "get_primaries") else [None]


def _statuses(client: Any, keys: list[bytes], prefix: str) -> Iterator[LockStatus]:
    """Yield the state of each key that can be a lock; other types of data are left out."""
    if not keys:
        return
    commands = [_commands(key) for key in keys]
    replies = _together(client, [command for some in commands for command in some])
    for key in keys:
        holder, left, waiting, head, fence = (next(replies) for _ in range(5))
        if not isinstance(holder, Exception):
            yield _status(key, prefix, holder, left, waiting, head, fence)


def _commands(key: bytes) -> list[tuple[Any, ...]]:
    queue = companion(key, b"queue")
    return [
        ("GET", key),
        ("PTTL", key),
        ("ZCARD", queue),
        ("ZRANGE", queue, 0, 0, "WITHSCORES"),
        ("HGET", companion(key, b"fence"), "fence"),
    ]


def _together(client: Any, commands: list[tuple[Any, ...]]) -> Iterator[Any]:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return iter(pipeline.execute(raise_on_error=False))


def _status(
    key: bytes, prefix: str, holder: Any, left: Any, waiting: Any, head: Any, fence: Any
) -> LockStatus:
    shown = _text(key)
    return LockStatus(
        lock_name=shown.removeprefix(prefix),
        key=shown,
        identifier=None if holder is None else _text(holder),
        remaining=left / 1000 if isinstance(left, int) and left >= 0 else None,
        fence=None if fence is None or isinstance(fence, Exception) else int(fence),
        waiting=waiting if isinstance(waiting, int) else 0,
        head=_ticket(head),
    )


def _ticket(found: Any) -> int | None:
    if not found or isinstance(found, Exception):
        return None
    last = found[0][1] if isinstance(found[0], (list, tuple)) else found[1]
    return int(float(last))


def _bytes(value: Any) -> bytes:
    found: bytes = six.ensure_binary(value, errors="surrogateescape")
    return found


def _text(value: Any) -> str:
    found: str = six.ensure_str(value, errors="surrogateescape")
    return found
