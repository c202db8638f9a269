"""``redis-lock ls`` and ``redis-lock show``: which locks are held, and who waits."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.output import Column, Pages, note, print_json
from redis_lock_decorators.cli.texts import duration, shortened
from redis_lock_decorators.inspection import LockStatus, find_locks, lock_status, waiters

COLUMNS = (
    Column("lock", ratio=1),
    Column("holder", width=16),
    Column("time left", width=11, is_number=True),
    Column("waiting", width=7, is_number=True),
    Column("fence", width=16, is_number=True),
)


def holder(status: LockStatus) -> str:
    """The cell that says who has a lock."""
    if status.is_min_hold:
        return "none: min_hold"
    return "free" if status.identifier is None else shortened(status.identifier)


def row(status: LockStatus) -> list[str]:
    """The cells of a lock."""
    return [
        status.lock_name,
        holder(status),
        "" if status.identifier is None else duration(status.remaining),
        str(status.waiting),
        "" if status.fence is None else str(status.fence),
    ]


@click.command()
@click.argument("pattern", default="*")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each lock.")
@click.pass_obj
def ls(connection: Any, pattern: str, as_json: bool) -> None:
    """List the locks that are held.

    PATTERN selects names: * is any text, ? one character, [ab] one of these. Rows appear as they
    are found, in no order.
    """
    pages, count = Pages(COLUMNS), 0
    for page in find_locks(connection.client, pattern, prefix=connection.prefix):
        count += len(page)
        if as_json:
            for status in page:
                print_json(asdict(status))
        else:
            pages.add(map(row, page))
    if not count and not as_json:
        note(f"no lock is held whose key matches {connection.prefix}{pattern}")


@click.command()
@click.argument("name")
@click.option("--waiters", "count", default=20, show_default=True, help="How many to list.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def show(connection: Any, name: str, count: int, as_json: bool) -> None:
    """Show one lock: its holder, the time left, and the waiters in order.

    The exit code is 1 if the lock is free.
    """
    client, prefix = connection.client, connection.prefix
    status = lock_status(client, name, prefix=prefix)
    queue = waiters(client, name, prefix=prefix, count=count)
    if as_json:
        print_json({**asdict(status), "waiters": [asdict(waiter) for waiter in queue]})
    else:
        facts = Pages((Column("", width=10), Column("", ratio=1)))
        facts.add(
            zip(("lock", "holder", "time left", "waiting", "fence"), row(status), strict=True)
        )
        if queue:
            table = Pages(
                (
                    Column("waiter", ratio=2),
                    Column("process (channel)", ratio=2),
                    Column("ticket", width=10, is_number=True),
                )
            )
            table.add([one.identifier, one.channel, str(one.ticket)] for one in queue)
    sys.exit(exit_codes.OK if status.is_held else exit_codes.NO)
