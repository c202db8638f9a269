"""``redis-lock doctor``: what would break locks on this server, from here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from redis_lock_decorators._rules.durations import LONGEST_EXPIRE
from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.acl import print_rule
from redis_lock_decorators.cli.durations import Between
from redis_lock_decorators.cli.output import console, print_json, print_lines
from redis_lock_decorators.cli.texts import shown
from redis_lock_decorators.diagnosis import Finding, Severity, diagnose

STYLES = {
    **dict.fromkeys((Severity.EXCLUSION, Severity.FAILURE, Severity.WAITING), "bold red"),
    **dict.fromkeys((Severity.RISK, Severity.SLOW), "yellow"),
    **dict.fromkeys((Severity.UNCHECKED, Severity.HINT), "dim"),
}
#: The longest severity.
WIDTH = 16
TITLES = ("severity", "servers", "finding", "meaning", "cure")
#: By what the user types for it.
USES = {
    "fencing": "fencing",
    "min_hold": "min_hold",
    "replicas": "replicas",
    "redis-py": "locks in place of redis-py's",
    "transaction": 'release_method="transaction"',
    "native": 'release_method="native"',
    "inspection": "redis-lock ls and show",
    "retries": "clients that repeat requests",
    "cluster": "clients of clusters",
}


@click.command()
@click.option(
    "--expire",
    default=10.0,
    show_default=True,
    type=Between(min=0.01, max=LONGEST_EXPIRE),
    help="Seconds that leases last in the program, to judge the client and the network by.",
)
@click.option(
    "--with",
    "names",
    multiple=True,
    type=click.Choice(list(USES)),
    help="A feature that the program uses in addition to waiting in queues; can be repeated.",
)
@click.option("--all", "is_all", is_flag=True, help="Show hints, too.")
@click.option("--acl", "user", metavar="USER", help="Print the smallest ACL rule for a user.")
@click.option("--verbs", is_flag=True, help="With --acl: also for ls, show, break, bench and demo.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each finding.")
@click.pass_obj
def doctor(
    connection: Any,
    expire: float,
    names: Sequence[str],
    is_all: bool,
    user: str | None,
    verbs: bool,
    as_json: bool,
) -> None:
    """Find what would break locks on this server, from here, worst first.

    Checks eviction, memory, persistence, replicas, clocks, permissions, commands, messages, the
    nodes of a cluster and the client's time-outs. Each command is tried on a throw-away key, and a
    throw-away lock is acquired, handed over and released. Nothing else is changed.

    Each finding says what it means and what to do. "not checked" is what the user must not ask.
    The exit code is 1 if something breaks exclusion, locks or waiting.

    --acl USER prints a command for redis-cli instead, which gives USER the permissions that locks
    need, and no others:

    \b
      redis-lock doctor --acl shop | redis-cli

    To judge the client of your program, name the function that returns it in
    REDIS_LOCK_CONNECTION.
    """
    uses = [USES[name] for name in names]
    if user is not None:
        if not user or any(map(str.isspace, user)):
            raise click.BadParameter("a user's name has no spaces", param_hint="--acl")
        print_rule(connection, user, uses, verbs, as_json)
        return
    _silence_log()
    found = diagnose(connection.client, expire=expire, prefix=connection.prefix, uses=uses)
    shown_ones = [one for one in found if is_all or one.severity is not Severity.HINT]
    if as_json:
        print_json(*map(_json, shown_ones))
    else:
        _print(shown_ones, hidden=len(found) - len(shown_ones))
    is_breaking = any(one.is_breaking for one in found)
    sys.exit(exit_codes.NO if is_breaking else exit_codes.OK)


def _silence_log() -> None:
    """Do not print warnings of the throw-away lock: their causes are findings."""
    logging.getLogger("redis_lock_decorators").addHandler(logging.NullHandler())


def _json(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "severity": finding.severity.value}


def _print(findings: Sequence[Finding], hidden: int) -> None:
    screen = console()
    if screen.is_terminal:
        if findings:
            screen.print(_table(findings))
        screen.print(Text(_summary(findings, hidden), style="dim"))
    elif findings:
        print_lines([TITLES, *map(_cells, findings)])


def _cells(finding: Finding) -> list[str]:
    servers = ", ".join(finding.servers)
    return [finding.severity.value, servers, finding.title, finding.meaning, finding.cure]


def _table(findings: Sequence[Finding]) -> Table:
    """A table with a wrapped paragraph for each finding."""
    found = Table(box=None, show_header=False, pad_edge=False, expand=True, padding=(0, 1, 1, 0))
    found.add_column(width=WIDTH, no_wrap=True)
    found.add_column(ratio=1, overflow="fold")
    for finding in findings:
        severity = Text(finding.severity.value, style=STYLES[finding.severity])
        found.add_row(severity, _paragraph(finding))
    return found


def _paragraph(finding: Finding) -> Text:
    servers = f"  {', '.join(finding.servers)}" if finding.servers else ""
    cure = f"\nCure: {shown(finding.cure)}" if finding.cure else ""
    return Text.assemble(
        (shown(finding.title), "bold"), (shown(servers), "dim"), f"\n{shown(finding.meaning)}", cure
    )


def _summary(findings: Sequence[Finding], hidden: int) -> str:
    breaking = sum(one.is_breaking for one in findings)
    unchecked = sum(one.severity is Severity.UNCHECKED for one in findings)
    counted = "1 finding breaks" if breaking == 1 else f"{breaking} findings break"
    parts = [f"{counted} locks" if breaking else "Nothing found that breaks locks"]
    if unchecked:
        parts.append(f"{unchecked} not checked")
    if hidden:
        parts.append(f"{hidden} hints with --all" if hidden > 1 else "1 hint with --all")
    return "; ".join(parts) + "."
