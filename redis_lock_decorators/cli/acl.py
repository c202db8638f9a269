"""``redis-lock doctor --acl``: the smallest ACL rule for locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import redis

from redis_lock_decorators._diagnosis import rights
from redis_lock_decorators._diagnosis.nodes import connected, nodes_of, trial_names
from redis_lock_decorators._rules.permissions import rules
from redis_lock_decorators.cli.output import note, print_json

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:+@|~&*%{}/")


def print_rule(connection: Any, user: str, uses: Sequence[str], as_json: bool) -> None:
    """Print the command that gives a user what these uses need."""
    client, prefix = connection.client, connection.prefix
    needed = [rights.WAITING, *uses]
    if hasattr(client, "nodes_manager") and rights.CLUSTER not in needed:
        needed.append(rights.CLUSTER)
    unknown = _unknown(client, prefix, needed)
    found = [rule for rule in rules(prefix, needed) if rule.removeprefix("+") not in unknown]
    if as_json:
        print_json({"user": user, "rules": found})
    else:
        click.echo(" ".join(["ACL SETUSER", *map(_quoted, [user, *found])]))
        note(f"adds to what {user} may do already; a new user also needs: on >password")


def _unknown(client: Any, prefix: str, uses: Sequence[str]) -> set[str]:
    """The commands that the server does not know, and so refuses in a rule."""
    found: set[str] = set()
    try:
        nodes = nodes_of(client)
        names = trial_names(client, prefix, nodes)
        for node in nodes[:1]:
            with connected(node) as asker:
                denials = rights.denied(asker, prefix, names[node.address], uses)
                found |= {
                    command.lower()
                    for command, denial in denials.items()
                    if denial is rights.Denial.UNKNOWN
                }
    except (redis.RedisError, OSError, KeyError) as error:
        note(f"the commands that the server knows were not checked: {error}")
    return found


def _quoted(word: str) -> str:
    """A word as redis-cli reads it."""
    if word and SAFE.issuperset(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escaped(c) for c in escaped) + '"'


def _escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape"))
