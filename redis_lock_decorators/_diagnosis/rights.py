"""Which commands, keys and channels a user may use, found by using them on a throw-away key."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis_lock_decorators._diagnosis.nodes import Asker, refuse_other
from redis_lock_decorators._rules.keys import companion, key_of
from redis_lock_decorators._rules.permissions import CHANNEL, RIGHTS, commands

WAITING = "waiting in queues and cohorts"
CLUSTER = "clients of clusters"
#: Milliseconds after which the throw-away key expires.
PROBE_MS = 1_000


class Denial(enum.Enum):
    """Why a command was refused."""

    UNKNOWN = "the server does not know it"
    COMMAND = "the user must not run it"
    KEY = "the user must not use the key"
    CHANNEL = "the user must not use the channel"


Denials = Mapping[str, Denial]


@dataclass(frozen=True)
class Rights:
    """What a user may do with locks.

    Attributes:
        denials: the commands that are refused, and why.
        refusal: the error of a write for another reason, such as a lack of memory; None if the
            server writes.
    """

    denials: Denials
    refusal: Exception | None = None


def tried(asker: Asker, prefix: str, name: str, uses: Sequence[str] = tuple(RIGHTS)) -> Rights:
    """Run each command of some uses where it changes nothing.

    The connection is of no use afterwards: it is subscribed to a channel.

    Raises:
        Exception: of the client's library; the server does not answer.
    """
    probes = _probes(key_of(prefix, name))
    needed = set(commands(uses)) - {"SET"}
    # HSET fails on a text, but would create a key that does not expire if there is none.
    written = asker.ask("SET", key_of(prefix, name), "x", "PX", PROBE_MS)
    is_set = not isinstance(written, Exception)
    found = {"SET": denial_of(written)}
    wanted = [one for one in probes if one in needed and (is_set or one != "HSET")]
    replies = asker.ask_all([probes[one] for one in wanted])
    found |= {one: denial_of(reply) for one, reply in zip(wanted, replies, strict=True)}
    if "SUBSCRIBE" in needed:
        found["SUBSCRIBE"] = _denial_of_subscription(asker)
    is_refused = isinstance(written, Exception) and found["SET"] is None
    denials = {one: denial for one, denial in found.items() if denial is not None}
    return Rights(denials, written if is_refused else None)


def denial_of(reply: Any) -> Denial | None:
    """Why a reply refuses the command; None for any other error, as the user may run it."""
    text = str(reply).lower() if isinstance(reply, Exception) else ""
    if "unknown command" in text or "unknown subcommand" in text:
        return Denial.UNKNOWN
    if "permission" not in text:
        return None
    if re.search(r"access .*\bchannel", text):
        return Denial.CHANNEL
    return Denial.KEY if re.search(r"access .*\bkey", text) else Denial.COMMAND


def _denial_of_subscription(asker: Asker) -> Denial | None:
    """Subscribe, alone and last: other commands may be refused afterwards."""
    try:
        return denial_of(asker.ask("SUBSCRIBE", f"{CHANNEL}doctor"))
    except Exception as error:
        refuse_other(error)
        return Denial.UNKNOWN  # a proxy without pub/sub closes the connection


def _probes(key: bytes) -> dict[str, tuple[Any, ...]]:
    """For each command one that changes nothing but the throw-away key, in a safe order."""
    queue, fields = companion(key, b"queue"), companion(key, b"waiters")
    channel = f"{CHANNEL}doctor"
    return {
        "HSET": ("HSET", key, "f", "v"),  # refused: a text
        "GET": ("GET", key),
        "EXISTS": ("EXISTS", key),
        "PTTL": ("PTTL", key),
        "PEXPIRE": ("PEXPIRE", key, PROBE_MS),
        "PEXPIRETIME": ("PEXPIRETIME", key),
        "DELIFEQ": ("DELIFEQ", key, "another"),
        "DELEX": ("DELEX", key, "IFEQ", "another"),
        "EVALSHA": ("EVALSHA", "0" * 40, 0),
        "EVAL": ("EVAL", "return 1", 0),
        "ZSCORE": ("ZSCORE", queue, "m"),
        "ZADD": ("ZADD", queue, "XX", 1, "m"),
        "ZREM": ("ZREM", queue, "m"),
        "ZPOPMIN": ("ZPOPMIN", queue),
        "ZCARD": ("ZCARD", queue),
        "ZRANGE": ("ZRANGE", queue, 0, 0),
        "ZREMRANGEBYSCORE": ("ZREMRANGEBYSCORE", queue, 0, 0),
        "ZREMRANGEBYRANK": ("ZREMRANGEBYRANK", queue, 0, 0),
        "HGET": ("HGET", fields, "f"),
        "HDEL": ("HDEL", fields, "f"),
        "HEXISTS": ("HEXISTS", fields, "f"),
        "PUBLISH": ("PUBLISH", channel, "hello"),
        "PUBSUB|NUMSUB": ("PUBSUB", "NUMSUB", channel),
        "PING": ("PING",),
        "TIME": ("TIME",),
        "INFO": ("INFO", "server"),
        "WAIT": ("WAIT", 0, 1),
        "SCAN": ("SCAN", 0, "COUNT", 1),
        "CLUSTER|SLOTS": ("CLUSTER", "SLOTS"),
        "COMMAND": ("COMMAND", "COUNT"),
        "ASKING": ("ASKING",),
        "PEXPIREAT": ("PEXPIREAT", key, 1),  # deletes it
        "DEL": ("DEL", key),
        # From here on each changes what the connection may do next.
        "WATCH": ("WATCH", key),
        "MULTI": ("MULTI",),
        "EXEC": ("EXEC",),
    }
