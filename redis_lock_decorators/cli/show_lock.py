"""``redis-lock show``: one lock, and who waits for it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.completion import lock_names
from redis_lock_decorators.cli.list_locks import (
    fence,
    held_by,
    holder,
    interval_option,
    time_left,
    watch_option,
)
from redis_lock_decorators.cli.output import Column, Pages, print_json, table
from redis_lock_decorators.cli.rates import Rated
from redis_lock_decorators.cli.texts import per_second, shortened
from redis_lock_decorators.cli.watching import rows_at_once, shower, watch
from redis_lock_decorators.inspection import LockStatus, Waiter, lock_status, waiters

FACTS = ("lock", "holder", "time left", "waiting", "fence")
HELD_BY = "held by"
FACT_COLUMNS = (Column("", width=12), Column(""))
WAITER_COLUMNS = (
    Column("waiter", width=14),
    Column("ticket", width=10, is_number=True),
    Column("process (channel)"),
)


@click.command()
@click.argument("name", shell_complete=lock_names)
@click.option(
    "--waiters",
    "count",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="How many to list.",
)
@watch_option
@interval_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def show(
    connection: Any, name: str, count: int, is_watched: bool, interval: float, as_json: bool
) -> None:
    """Show one lock: its holder, the time left, and the waiters in order.

    The exit code is 1 if the lock has no holder.
    """
    client, prefix = connection.client, connection.prefix
    if is_watched:
        _watch(connection, name, count, interval, as_json)
    status = lock_status(client, name, prefix=prefix)
    queue = waiters(client, name, prefix=prefix, count=count) if count else []
    if as_json:
        print_json({**asdict(status), "waiters": [asdict(waiter) for waiter in queue]})
    else:
        rows = [*zip(FACTS, _facts(status), strict=True)]
        if about := held_by(status):
            rows.insert(2, (HELD_BY, about))
        Pages(FACT_COLUMNS, has_heading=False).add(rows)
        if queue:
            Pages(WAITER_COLUMNS).add(map(_waiter, queue))
    sys.exit(exit_codes.OK if status.is_held else exit_codes.NO)


def _facts(status: LockStatus) -> list[str]:
    return [
        status.lock_name,
        holder(status),
        time_left(status),
        str(status.waiting),
        fence(status),
    ]


def _waiter(waiter: Waiter) -> list[str]:
    return [shortened(waiter.identifier), str(waiter.ticket), waiter.channel]


def _watch(connection: Any, name: str, count: int, interval: float, as_json: bool) -> None:
    client, prefix = connection.client, connection.prefix
    titles = (*FACTS, HELD_BY, "hand-overs/s")

    def read(_: int) -> list[LockStatus]:
        return [lock_status(client, name, prefix=prefix)]

    def cells(lock: Rated) -> list[str]:
        return [*_facts(lock[0]), held_by(lock[0]), per_second(lock[1])]

    def draw(locks: list[Rated]) -> RenderableType:
        facts = table(FACT_COLUMNS, zip(titles, cells(locks[0]), strict=True), has_heading=False)
        most = min(count, rows_at_once() - len(titles))
        queue = waiters(client, name, prefix=prefix, count=most) if most > 0 else []
        return Group(facts, _queue_table(queue)) if queue else facts

    watch(connection, read, shower(draw, titles, cells, as_json), interval)


def _queue_table(queue: list[Waiter]) -> Table:
    return table(WAITER_COLUMNS, map(_waiter, queue))
