"""Read the state of locks: which are held, for how long yet, and who waits.

Nothing here changes a lock. The figures are those of one moment; another process may change them
before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redis_lock_decorators._flow.identifiers import is_resting, released_by
from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._io.lock_states import GONE, OTHER, as_text, pages, scored, together
from redis_lock_decorators._rules.keys import (
    DEFAULT_PREFIX,
    checked_name,
    companion,
    is_companion,
    key_of,
)
from redis_lock_decorators._rules.owner_info import KIND, is_of, parsed
from redis_lock_decorators._rules.permissions import key_pattern
from redis_lock_decorators.errors import ConfigurationError, LockNameError

__all__ = ["LockStatus", "Waiter", "find_locks", "hand_over_times", "lock_status", "waiters"]


@dataclass(frozen=True, slots=True)
class LockStatus:
    """One lock as it was found.

    Attributes:
        lock_name: the name, without the prefix.
        key: the Redis key.
        identifier: the identifier of the holder, or of the last one if ``min_hold`` keeps the lock
            from others; None if the lock is free.
        is_min_hold: its holder has released it, and ``min_hold`` keeps it for ``remaining``.
        remaining: seconds until the lease ends unless it is renewed; None if the lock is free or
            has no time to live.
        fence: the last fencing token, if the lock has any.
        waiting: how many queue entries wait for it. A cohort has one entry for a whole process;
            waiters that poll have none.
        head: the ticket of the first entry of the queue; it grows with each hand-over.
        owner: the information about the holder, as ``RedisLock.owner_info()`` returns it; None
            if there is none.
    """

    lock_name: str
    key: str
    identifier: str | None
    is_min_hold: bool
    remaining: float | None
    fence: int | None
    waiting: int
    head: int | None
    owner: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def is_held(self) -> bool:
        """Whether the lock had a holder."""
        return self.identifier is not None and not self.is_min_hold


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
    """Find the locks that are not free, a page at a time, in no particular order.

    SCAN is used, on every primary node of a cluster, so the server is never blocked for long, and
    only one page is kept in memory. A lock that is acquired or released meanwhile may be missing,
    and one may be reported twice.

    Args:
        client: the Redis client.
        pattern: of the names, as the server's ``SCAN`` has it: ``*``, ``?``, ``[ab]``.
        prefix: the text before the name in the Redis key.

    Yields:
        pages with one lock or more.

    Raises:
        ConfigurationError: the client is one of asyncio, or the pattern is no text.
        redis.exceptions.RedisError: the server does not answer or refuses a command.
    """
    refuse_unfit_client(client, awaited=False)
    if not isinstance(pattern, str):
        raise ConfigurationError(f"pattern={pattern!r:.80}: give text such as 'report:*'")
    match = (key_pattern(prefix)[:-1] + pattern).encode(errors="surrogateescape")
    for page in pages(client, match):
        keys = [key for key in page if not is_companion(key)]
        states = _statuses(client, keys, prefix)
        if found := [status for status in states if status.identifier is not None]:
            yield found


def lock_status(
    client: BlockingClient, lock_name: str, *, prefix: str = DEFAULT_PREFIX
) -> LockStatus:
    """Return the state of one lock, held or free.

    Raises:
        LockNameError: the name is not one text, or its key has other data than a lock's.
        ConfigurationError: the client is one of asyncio.
        redis.exceptions.RedisError: the server does not answer or refuses a command.
    """
    name = _checked(client, lock_name)
    key = key_of(prefix, name)
    for status in _statuses(client, [key], prefix):
        return replace(status, lock_name=name)
    raise LockNameError(f"the key of lock {lock_name!r:.80} has other data than a lock's")


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
        LockNameError: the name is not one text.
        ConfigurationError: the client is one of asyncio.
        redis.exceptions.RedisError: the server does not answer or refuses a command.
    """
    name = _checked(client, lock_name)
    queue = companion(key_of(prefix, name), b"queue")
    (found,) = together(client, [("ZRANGE", queue, 0, max(count, 1) - 1, "WITHSCORES")])
    if found is OTHER:
        return []
    return [waiter for entry, ticket in scored(found) for waiter in _waiters(entry, ticket)]


def hand_over_times(
    client: BlockingClient, lock_name: str, *, prefix: str = DEFAULT_PREFIX, count: int = 100
) -> list[float]:
    """Return when the lock was last released while others waited or had just waited.

    The server keeps a thousand of them, of half a minute. Releases by a transaction or by a native
    command, and hand-overs within a cohort, are missing.

    Args:
        client: the Redis client.
        lock_name: the name of the lock.
        prefix: the text before the name in the Redis key.
        count: how many at most.

    Returns:
        Unix times by the server's clock, in seconds, ascending.

    Raises:
        LockNameError: the name is not one text.
        ConfigurationError: the client is one of asyncio.
        redis.exceptions.RedisError: the server does not answer or refuses a command.
    """
    name = _checked(client, lock_name)
    released = companion(key_of(prefix, name), b"released")
    (found,) = together(client, [("ZRANGE", released, -max(count, 1), -1, "WITHSCORES")])
    return [] if found is OTHER else [float(score) / 1000 for _, score in scored(found)]


def _checked(client: Any, lock_name: str) -> str:
    refuse_unfit_client(client, awaited=False)
    if not isinstance(lock_name, (str, bytes)):
        raise LockNameError(f"give the name of one lock, not {lock_name!r:.80}")
    return checked_name(lock_name)


def _waiters(entry: Any, ticket: Any) -> Iterator[Waiter]:
    """Yield the waiter of an entry; none for one that was written by hand and has another form."""
    channel, _, rest = as_text(entry).partition("|")
    identifier, separator, _ = rest.partition("|")
    if separator:
        yield Waiter(identifier, channel, int(float(ticket)))


def _statuses(client: Any, keys: list[bytes], prefix: str) -> Iterator[LockStatus]:
    """Yield the state of each key that can be a lock; other types of data are left out."""
    if not keys:
        return
    commands = [command for key in keys for command in _commands(key)]
    replies = together(client, commands)
    for key in keys:
        holder, left, *others = (next(replies) for _ in range(6))
        if holder is not OTHER:
            # The key may have expired between the two commands.
            yield _status(key, prefix, None if left == GONE else holder, left, *others)


def _commands(key: bytes) -> list[tuple[Any, ...]]:
    queue = companion(key, b"queue")
    return [
        ("GET", key),
        ("PTTL", key),
        ("ZCARD", queue),
        ("ZRANGE", queue, 0, 0, "WITHSCORES"),
        ("HGET", companion(key, b"fence"), "fence"),
        ("GET", companion(key, KIND)),
    ]


def _status(
    key: bytes, prefix: str, holder: Any, left: Any, waiting: Any, head: Any, fence: Any, info: Any
) -> LockStatus:
    key_text = as_text(key)
    found = None if holder is None else as_text(holder)
    return LockStatus(
        lock_name=key_text.removeprefix(prefix),
        key=key_text,
        identifier=None if found is None else released_by(found),
        is_min_hold=found is not None and is_resting(found),
        remaining=left / 1000 if left >= 0 else None,
        fence=None if fence is OTHER or fence is None else int(fence),
        waiting=0 if waiting is OTHER else waiting,
        head=None if head is OTHER else _first_ticket(head),
        owner=(parsed(info) or None) if found is not None and is_of(info, found) else None,
    )


def _first_ticket(found: Any) -> int | None:
    return next((int(float(ticket)) for _, ticket in scored(found)), None)
