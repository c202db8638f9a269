"""Unknown options, and those that were probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from redis_lock_decorators.errors import ConfigurationError

_LEASE = "expire= (how long the lease lives)"
_WAIT = "acquire_time= (the longest wait)"
_CLIENT = "client= (a Redis client) or get_redis_connection= (a function that returns one)"
#: The names that other libraries use, and the options here.
_MEANT = {
    "timeout": f"{_LEASE} or {_WAIT}",
    **dict.fromkeys(("ttl", "ex", "px", "lease", "lease_time", "lock_timeout"), _LEASE),
    **dict.fromkeys(("lease_seconds", "lease_timeout", "validity"), _LEASE),
    **dict.fromkeys(("blocking_timeout", "wait_time", "wait_timeout", "max_wait"), _WAIT),
    **dict.fromkeys(("retry", "retries", "retry_count", "retry_times", "max_retries"), _WAIT),
    **dict.fromkeys(("blocking", "nowait", "no_wait", "non_blocking"), "acquire_time=0 (try once)"),
    "sleep": "delta= (the first pause between two tries)",
    **dict.fromkeys(("retry_delay", "retry_interval", "interval"), "delta="),
    **dict.fromkeys(("auto_renewal", "auto_extend", "renew", "keep_alive"), "auto_renew="),
    **dict.fromkeys(("heartbeat", "watchdog"), "auto_renew="),
    **dict.fromkeys(("name", "key", "resource", "lock"), "lock_name="),
    **dict.fromkeys(("redis", "conn", "connection", "redis_client", "redis_conn"), "client="),
    **dict.fromkeys(("url", "redis_url", "host", "port", "db", "password"), _CLIENT),
    **dict.fromkeys(("token", "id"), "lease.identifier, which each acquisition makes"),
    "key_prefix": "prefix=",
    "namespace": "prefix=",
    **dict.fromkeys(("fence", "fencing_token"), "fencing="),
    **dict.fromkeys(("queue", "strategy", "fair"), "wait= (by default in a queue)"),
    **dict.fromkeys(("default", "skip"), "on_busy= of @redis_lock (what a busy call does)"),
    "strict": "lease.release(), which always refuses a lock that is not its own",
}
#: The names of other libraries that have no option here, and why.
_NOT_HERE = {
    "thread_local": "any thread may use a lease",
    "raise_on_release_error": "a block that ends without exception reports a lost lock",
    "reentrant": "there is no reentrancy",
}
#: How similar a name must be to be suggested: "default" is no misspelt "delta".
_SIMILAR = 0.7
#: The arguments that most functions take in addition to the options.
_OTHER_ARGUMENTS = ("lock_name", "get_lock_name", "client", "get_redis_connection", "on_busy")


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown options.

    Raises:
        ConfigurationError: there is one; the message says which was probably meant.
    """
    names = sorted(known)
    unknown = sorted(set(given).difference(names))
    if unknown:
        hints = [_hint(name, (*names, *_OTHER_ARGUMENTS)) for name in unknown]
        others = f" (and {', '.join(_OTHER_ARGUMENTS)})" if "expire" in names else ""
        raise ConfigurationError(f"{'; '.join(hints)}; the options are {', '.join(names)}{others}")


def _hint(unknown: str, known: tuple[str, ...]) -> str:
    problem = f"unknown option {unknown}"
    if unknown == "on_busy":
        return f"{problem} here: only @redis_lock takes it"
    if unknown in _OTHER_ARGUMENTS:
        return f"{problem}: it cannot be given here"
    if unknown in _NOT_HERE:
        return f"{problem} ({_NOT_HERE[unknown]})"
    meant = _MEANT.get(unknown, "")
    if meant.startswith(_LEASE) and "expire" not in known:
        meant = _WAIT  # of a method that only waits
    if not meant and (close := difflib.get_close_matches(unknown, known, 1, _SIMILAR)):
        meant = f"{close[0]}="
    return f"{problem} (did you mean {meant}?)" if meant else problem
