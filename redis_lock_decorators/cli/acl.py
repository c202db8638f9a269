"""``redis-lock doctor --acl``: the smallest ACL rule for locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from redis_lock_decorators._diagnosis import rights
from redis_lock_decorators._diagnosis.nodes import (
    connected,
    is_cluster,
    nodes_of,
    parsed_info,
    refuse_other,
    trial_names,
)
from redis_lock_decorators._diagnosis.rights import Denial
from redis_lock_decorators._rules.permissions import rules
from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.cli.output import note, print_json

#: What ``bench`` needs for redis-py's Lock, and ``demo`` for its counter, in addition to locks.
MEASUREMENTS = ("SCRIPT|LOAD", "MULTI", "EXEC", "LLEN", "RPUSH", "LRANGE", "LPOP")
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:+@|~&*%{}/")


def print_rule(
    connection: Any, user: str, uses: Sequence[str], has_verbs: bool, as_json: bool
) -> None:
    """Print the command that gives a user what these uses need, and the verbs of this program."""
    client, prefix = connection.client, connection.prefix
    inspection = ["redis-lock ls and show"] if has_verbs else []
    needed = list(dict.fromkeys([rights.WAITING, *inspection, *uses]))
    if is_cluster(client) and rights.CLUSTER not in needed:
        needed.append(rights.CLUSTER)
    found = _adapted(client, prefix, rules(prefix, needed))
    if has_verbs:
        found = list(dict.fromkeys([*found, *(f"+{one.lower()}" for one in MEASUREMENTS)]))
    if as_json:
        print_json({"user": user, "rules": found})
    else:
        click.echo(" ".join(["ACL SETUSER", *map(_quoted, [user, *found])]))
        verbs = "" if has_verbs else "; for ls, show, break, bench and demo add --verbs"
        note(f"adds to what {user} may do already; a new user also needs: on >password{verbs}")


def _adapted(client: Any, prefix: str, allowed: list[str]) -> list[str]:
    """The rules as the server accepts them: without commands that it does not know."""
    try:
        nodes = nodes_of(client)[:1]
        names = trial_names(client, prefix, nodes)
        for node in nodes:
            with connected(node) as asker:
                info = asker.ask("INFO", "server")
                denials = rights.tried(asker, prefix, names[node.address]).denials
    except Exception as error:
        refuse_other(error)
        note(f"it was not checked which commands the server knows: {safe_text(error)}")
        return allowed
    known = [rule for rule in allowed if denials.get(rule[1:].upper()) is not Denial.UNKNOWN]
    return [*(["resetchannels"] if _has_all_channels(info) else []), *known]


def _has_all_channels(info: Any) -> bool:
    """Whether a new user may use all channels, so that a rule cannot add any: before Redis 7."""
    version = "" if isinstance(info, Exception) else parsed_info(info).get("redis_version", "")
    return version.startswith("6.")


def _quoted(word: str) -> str:
    """A word as redis-cli reads it."""
    if word and SAFE.issuperset(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escaped(c) for c in escaped) + '"'


def _escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape"))
