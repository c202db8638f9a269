"""Which pools can be bypassed: private connections with the same settings reach the same server."""

from __future__ import annotations

from typing import Any

#: The packages of the client libraries whose connections are imitated.
LIBRARIES = frozenset({"redis", "valkey"})


def is_plain_pool(pool: Any) -> bool:
    """Whether a pool is the library's, with no choice of servers by the program."""
    if getattr(pool, "cache", None) is not None:
        return False
    choosing = [getattr(pool, name, None) for name in ("make_connection", "get_connection")]
    # The program's own pool class may choose a server, database or user for each connection.
    parts = [getattr(pool, "connection_class", None), *filter(None, choosing)]
    return all(library_of(part) in LIBRARIES for part in parts)


def library_of(part: Any) -> str:
    """The package that defines a class or a function."""
    return (getattr(part, "__module__", None) or "").partition(".")[0]
