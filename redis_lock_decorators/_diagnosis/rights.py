"""Which commands, keys and channels a user may use, found by using them on a throw-away key."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._diagnosis.nodes import Asker, refuse_other
from redis_lock_decorators._rules.keys import companion, key_of
from redis_lock_decorators._rules.permissions import CHANNEL, RIGHTS, commands, key_pattern

WAITING = "waiting in queues and cohorts"
CLUSTER = "clients of clusters"
#: Of these the lack is tolerated: they record releases, or skip crashed waiters and save requests.
RECORDS = frozenset(("TIME", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"))
SAVINGS = frozenset(("INFO", "PUBSUB|NUMSUB", "HSET", "HEXISTS"))
#: Of "every lock", these serve hand-overs only.
HAND_OVERS = frozenset(("EXISTS", "ZSCORE"))
#: Without them other commands are used.
REPLACED = frozenset(("PEXPIRETIME",))
#: Milliseconds after which the throw-away key expires.
KEPT = 1_000
#: The commands that a server knows under one of these names only.
NATIVE = frozenset(("DELIFEQ", "DELEX"))


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
    written = asker.ask("SET", key_of(prefix, name), "x", "PX", KEPT)
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
        "PEXPIRE": ("PEXPIRE", key, KEPT),
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


def refused(rights: Rights) -> Iterator[Finding]:
    """Yield that the server does not write."""
    if rights.refusal is not None:
        yield Finding(
            Severity.FAILURE,
            "The server refuses to write the key of a lock",
            f"{type(rights.refusal).__name__}: {rights.refusal}",
            "Remove what it names; see also the server's log.",
        )


def findings(rights: Rights, prefix: str, uses: Sequence[str]) -> Iterator[Finding]:
    """Yield what the denials mean to locks that are used so; hints for the other uses."""
    denials, chosen = rights.denials, set(commands(uses))
    yield from _places(denials, prefix, chosen)
    yield from _commands(denials, chosen)
    yield from _unused(denials, uses, chosen)


def _places(denials: Denials, prefix: str, chosen: set[str]) -> Iterator[Finding]:
    keys = [one for one, denial in denials.items() if denial is Denial.KEY and one in chosen]
    if keys:
        yield Finding(
            Severity.FAILURE,
            f"The user must not use keys that begin with {prefix}",
            f"{_listed(keys)} on such a key: locks cannot be used.",
            f"ACL SETUSER … ~{key_pattern(prefix)}  (redis-lock doctor --acl USER prints all)",
        )
    channels = [one for one, denial in denials.items() if denial is Denial.CHANNEL]
    if chosen.intersection(channels):
        yield Finding(
            Severity.WAITING,
            f"The user must not use the channels {CHANNEL}*",
            "Waiters are not notified of a hand-over. They poll, and the order of arrival is lost.",
            f"ACL SETUSER … &{CHANNEL}*  (redis-lock doctor --acl USER prints all)",
        )


def _commands(denials: Denials, chosen: set[str]) -> Iterator[Finding]:
    for denial in (Denial.COMMAND, Denial.UNKNOWN):
        refused = [one for one, found in denials.items() if found is denial and one in chosen]
        refused = [one for one in refused if one not in NATIVE | REPLACED]
        for severity in Severity:
            if found := [one for one in refused if _severity(one) is severity]:
                yield _of_commands(severity, found, denial)


def _severity(command: str) -> Severity:
    if command in RECORDS:
        return Severity.RISK
    if command in SAVINGS:
        return Severity.SLOW
    if command in HAND_OVERS:
        return Severity.WAITING
    is_waiting = command in RIGHTS[WAITING] and command not in RIGHTS["every lock"]
    return Severity.WAITING if is_waiting else Severity.FAILURE


MEANINGS = {
    Severity.FAILURE: "Locks that need this cannot be acquired, renewed or released.",
    Severity.WAITING: "Locks are not handed to waiters. They poll, and the order of arrival is "
    "lost.",
    Severity.RISK: "Releases are not recorded: one whose reply is lost may be reported as a loss.",
    Severity.SLOW: "A waiter may need one more request, and a crashed waiter may delay the others "
    "by up to 2.5 s.",
}


def _of_commands(severity: Severity, refused: list[str], denial: Denial) -> Finding:
    names = _listed(refused)
    if denial is Denial.UNKNOWN:
        return Finding(
            severity,
            f"The server lacks {names}",
            MEANINGS[severity],
            "Take its rename-command out of the server's configuration, or use a server or proxy "
            "that has it.",
        )
    allowed = " ".join(f"+{one.lower()}" for one in refused)
    return Finding(
        severity,
        f"The user must not run {names}",
        MEANINGS[severity],
        f"ACL SETUSER … {allowed}  (redis-lock doctor --acl USER prints all)",
    )


def _unused(denials: Denials, uses: Sequence[str], chosen: set[str]) -> Iterator[Finding]:
    """Hints about uses that were not asked for, and about the native release."""
    for use, needed in RIGHTS.items():
        if use == CLUSTER and use not in uses:
            continue
        if use == 'release_method="native"':
            missing = list(needed) if denials.keys() >= set(needed) else []
        else:
            missing = [one for one in needed if one in denials and one not in chosen]
            missing = [one for one in missing if one not in REPLACED]
        if missing:
            reasons = dict.fromkeys(denials[one].value for one in missing)
            yield Finding(
                Severity.FAILURE if use in uses else Severity.HINT,
                f"Not available here: {use}",
                f"{_listed(missing)}: {', '.join(reasons)}.",
                "Nothing, unless you use it." if use not in uses else "Use another method.",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.replace("|", " ") for name in names)
