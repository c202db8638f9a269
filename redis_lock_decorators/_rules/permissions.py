"""The permissions that the Redis user needs, by the features that are used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

#: The prefix of the pub/sub channels.
CHANNEL = "redis-lock:"

#: The commands for notes of releases, in addition to ZADD.
NOTES = ("TIME", "ZRANGE", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK")
#: The commands of each use, in addition to those of "every lock".
RIGHTS: Mapping[str, tuple[str, ...]] = {
    "every lock": (
        *("EVALSHA", "EVAL", "SET", "GET", "DEL", "EXISTS", "PTTL", "PEXPIRE", "ZSCORE"),
    ),
    "waiting in queues and cohorts": (
        *("SUBSCRIBE", "PUBLISH", "PING", "PUBSUB|NUMSUB", "INFO"),
        *("ZADD", "ZREM", "ZPOPMIN", "HGET", "HSET", "HDEL", "HEXISTS"),
        *NOTES,
    ),
    "fencing": ("TIME", "HGET", "HSET"),
    "min_hold": ("ZRANGE", "HDEL"),
    "replicas": ("WAIT",),
    "locks in place of redis-py's": ("TIME", "PEXPIRETIME", "PEXPIREAT"),
    'release_method="transaction"': ("WATCH", "MULTI", "EXEC", "HDEL"),
    'release_method="native"': ("DELIFEQ", "DELEX"),
    "redis-lock ls and show": ("SCAN", "ZCARD", "ZRANGE", "HGET"),
    "clients that repeat requests": ("ZADD", *NOTES),
    "clients of clusters": ("ZADD", *NOTES, "CLUSTER|SLOTS", "COMMAND", "ASKING"),
}

_SPECIAL = re.compile(r"([\\*?\[\]])")


def commands(uses: Iterable[str] = tuple(RIGHTS)) -> list[str]:
    """Return the commands of some uses and of every lock, without duplicates.

    Raises:
        ConfigurationError: a use is unknown, or ``uses`` is a text instead of a list.
    """
    known = ", ".join(map(repr, RIGHTS))
    if isinstance(uses, str):
        raise ConfigurationError(f"uses={shown_value(uses)}: give a list of {known}")
    uses = list(uses)
    for use in uses:
        if use not in RIGHTS:
            raise ConfigurationError(f"uses: there is no {use!r:.80}: give some of {known}")
    return list(dict.fromkeys(one for use in ("every lock", *uses) for one in RIGHTS[use]))


def key_pattern(prefix: str) -> str:
    """Return the ACL key pattern of all locks with a prefix, and of their companion keys."""
    return _SPECIAL.sub(r"\\\1", prefix) + "*"


def rules(prefix: str, uses: Iterable[str] = tuple(RIGHTS)) -> list[str]:
    """Return the rules for ``ACL SETUSER``. A server refuses commands that it does not know."""
    allowed = [f"+{command.lower()}" for command in commands(uses)]
    return [f"~{key_pattern(prefix)}", f"&{CHANNEL}*", *allowed]
