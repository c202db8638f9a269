"""Judge a server by its reply to INFO. Each check is given the fields and asks nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from redis_lock_decorators._diagnosis.finding import Finding, Severity

Info = Mapping[str, str]

OLDEST = (6, 2)
#: The share of ``maxmemory`` and of ``maxclients`` in use from which they are nearly exhausted.
NEARLY = 0.9
#: Seconds since the last message of a replica, and bytes that it lacks, from which it lags.
LAG_SECONDS = 5
LAG_BYTES = 10 * 1024 * 1024
_REPLICA = re.compile(r"slave\d+")


class Missing(Exception):
    """The reply has not the field that a check needs."""


def findings(info: Info) -> Iterator[Finding]:
    """Yield what is found, and the checks that lack a field."""
    for title, check in CHECKS.items():
        try:
            yield from check(info)
        except Missing as missing:
            reason = f"the server's INFO has no usable field {missing}"
            yield Finding(Severity.UNCHECKED, title, reason)


def _number(info: Info, name: str) -> int:
    try:
        return int(info[name])
    except (KeyError, ValueError):
        raise Missing(name) from None


def _text(info: Info, name: str) -> str:
    try:
        return info[name]
    except KeyError:
        raise Missing(name) from None


def version(info: Info) -> Iterator[Finding]:
    """An old server."""
    if "valkey_version" in info:  # all versions of Valkey have what is needed
        return
    found = _text(info, "redis_version")
    parts = re.match(r"(\d+)\.(\d+)", found)
    if parts is None:
        raise Missing("redis_version")
    if (int(parts[1]), int(parts[2])) < OLDEST:
        yield Finding(
            Severity.FAILURE,
            f"The server has version {found}",
            "Redis before 6.2 lacks options of commands that the scripts of locks use.",
            "Use Redis 6.2 or later, or Valkey.",
        )


def eviction(info: Info) -> Iterator[Finding]:
    """A policy that deletes keys of locks."""
    policy = _text(info, "maxmemory_policy")
    if policy == "noeviction":
        return
    is_limited = _number(info, "maxmemory") > 0
    yield Finding(
        Severity.EXCLUSION if is_limited else Severity.HINT,
        f"Keys may be evicted: maxmemory-policy is {policy}",
        ("When" if is_limited else "If maxmemory is set, then when")
        + " the memory is used up, the server deletes keys of locks that are held (they have a "
        "time to live), and other clients acquire these locks.",
        "CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own.",
    )


def memory(info: Info) -> Iterator[Finding]:
    """Memory that is nearly used up, with a policy that evicts nothing."""
    most = _number(info, "maxmemory")
    if not most or _text(info, "maxmemory_policy") != "noeviction":
        return
    share = (_number(info, "used_memory") - int(info.get("mem_not_counted_for_evict") or 0)) / most
    if share < NEARLY:
        return
    is_full = share >= 1
    yield Finding(
        Severity.FAILURE if is_full else Severity.RISK,
        "The memory is used up" if is_full else "The memory is nearly used up",
        "Without memory the server refuses to acquire locks; those that are held are renewed "
        "and released.",
        "Raise maxmemory, or delete data.",
    )


def role(info: Info) -> Iterator[Finding]:
    """A replica instead of a master."""
    if _text(info, "role") == "master":
        return
    is_writable = info.get("slave_read_only") == "0"
    yield Finding(
        Severity.EXCLUSION if is_writable else Severity.FAILURE,
        "The server is a replica" + (" that accepts writes" if is_writable else ""),
        "Its master does not know the locks that are acquired here, and overwrites them."
        if is_writable
        else "It refuses to acquire, renew and release locks.",
        "Connect to the master: by Sentinel (redis+sentinel://…) or by its address.",
    )


def persistence_errors(info: Info) -> Iterator[Finding]:
    """Snapshots or an append-only file that cannot be written."""
    names = {"rdb_last_bgsave_status": "snapshot", "aof_last_write_status": "append-only file"}
    for name, title in names.items():
        if info.get(name, "ok") != "ok":
            yield Finding(
                Severity.RISK,
                f"The server cannot write its {title}",
                "With its default settings it then refuses all writes: no lock can be acquired "
                "or renewed.",
                "Read the server's log; see to its disk.",
            )


def persistence(info: Info) -> Iterator[Finding]:
    """No append-only file, as on most servers for locks."""
    if _number(info, "aof_enabled"):
        return
    yield Finding(
        Severity.HINT,
        "The server keeps no append-only file",
        "After a restart the locks that are held are free, and other clients acquire them.",
        "If a second holder would do harm: appendonly yes with appendfsync always, or refuse "
        "old fences (fencing=True) where the data is written.",
    )


def replicas(info: Info) -> Iterator[Finding]:
    """Replicas, which are asynchronous, and those that lag behind."""
    found = [value for name, value in info.items() if _REPLICA.fullmatch(name)]
    if found:
        yield Finding(
            Severity.HINT,
            "Replication is asynchronous",
            "A failover loses the locks that the new master had not received.",
            "replicas=1 makes that rarer; if a second holder would do harm, refuse old fences "
            "(fencing=True) where the data is written.",
        )
    end = int(info.get("master_repl_offset") or 0)
    for value in found:
        if problem := _lag(dict(part.split("=", 1) for part in value.split(",")), end):
            yield Finding(
                Severity.RISK,
                f"A replica {problem}",
                "A failover to it loses locks; a lock with replicas=… is not confirmed in time.",
                "See to the network and the load of that replica.",
            )


def _lag(replica: Mapping[str, str], end: int) -> str:
    address = f"({replica.get('ip', '?')}:{replica.get('port', '?')})"
    if replica.get("state") != "online":
        return f"is not online {address}: {replica.get('state', 'unknown')}"
    if int(replica.get("lag") or 0) >= LAG_SECONDS:
        return f"has not answered for more than {LAG_SECONDS} s {address}"
    if end - int(replica.get("offset") or end) >= LAG_BYTES:
        return f"lacks more than {LAG_BYTES // 1024 // 1024} MB {address}"
    return ""


def connections(info: Info) -> Iterator[Finding]:
    """A limit of connections that is nearly reached."""
    if "maxclients" not in info:  # not all versions report it
        return
    if _number(info, "connected_clients") >= NEARLY * _number(info, "maxclients"):
        yield Finding(
            Severity.RISK,
            "The server has nearly as many connections as it accepts",
            "A process needs a connection to acquire and renew locks, and one for messages.",
            "Raise maxclients, or close connections that are not used.",
        )


#: By what is not checked if a field is missing.
CHECKS: dict[str, Callable[[Info], Iterator[Finding]]] = {
    "The version of the server": version,
    "The eviction of keys": eviction,
    "The memory of the server": memory,
    "Whether the server is a master": role,
    "Errors of persistence": persistence_errors,
    "Persistence": persistence,
    "Replicas": replicas,
    "The number of connections": connections,
}
