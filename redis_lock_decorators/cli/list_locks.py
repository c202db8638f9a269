"""``redis-lock ls``: which locks are held."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from redis_lock_decorators._rules.owner_info import held_for
from redis_lock_decorators.cli.durations import Between
from redis_lock_decorators.cli.output import Column, Pages, console, note, print_json, table
from redis_lock_decorators.cli.rates import Rated
from redis_lock_decorators.cli.texts import duration, per_second, shortened
from redis_lock_decorators.cli.watching import shower, watch
from redis_lock_decorators.errors import described
from redis_lock_decorators.inspection import LockStatus, find_locks

HOLDER, TIME_LEFT = Column("holder", width=14), Column("time left", width=11, is_number=True)
WAITING, LOCK = Column("waiting", width=7, is_number=True), Column("lock")
COLUMNS = (HOLDER, TIME_LEFT, WAITING, Column("fence", width=16, is_number=True), LOCK)
HELD_BY = Column("held by")
#: Narrower terminals show no information about holders: the names need the room.
LEAST_WIDTH = 110
WATCHED_COLUMNS = (
    *(HOLDER, TIME_LEFT, WAITING),
    *(Column("hand-overs/s", width=12, is_number=True), LOCK),
)
watch_option = click.option(
    "--watch", "is_watched", is_flag=True, help="Show it again and again, until Ctrl-C."
)
interval_option = click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=Between(min=0.1, max=86_400),
    help="Seconds between two views of --watch.",
)


@click.command()
@click.argument("pattern", default="*")
@watch_option
@interval_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each lock.")
@click.pass_obj
def ls(connection: Any, pattern: str, is_watched: bool, interval: float, as_json: bool) -> None:
    """List the locks that are held.

    PATTERN selects names: * is any text, ? one character, [ab] one of these. Rows appear as they
    are found, in no order.

    --watch shows as many locks as the terminal has lines, those with most waiters first.
    """
    if is_watched:
        _watch(connection, pattern, interval, as_json)
    columns: tuple[Column, ...] = COLUMNS
    pages, count = None, 0
    for page in find_locks(connection.client, pattern, prefix=connection.prefix):
        count += len(page)
        if as_json:
            print_json(*map(asdict, page))
        else:
            if pages is None:
                columns = _columns(page)
                pages = Pages(columns)
            cells = ([*_cells(status, fence(status)), held_by(status)] for status in page)
            pages.add(row[: len(columns)] for row in cells)
    if not count and not as_json:
        note(f"no lock is held whose key matches {connection.prefix}{pattern}")


def _columns(page: list[LockStatus]) -> tuple[Column, ...]:
    """The columns, by the first page of locks: also who holds them, if that is known of any."""
    screen = console()
    has_room = not screen.is_terminal or screen.width >= LEAST_WIDTH
    is_known = any(status.owner is not None for status in page)
    return (*COLUMNS, HELD_BY) if has_room and is_known else COLUMNS


def holder(status: LockStatus) -> str:
    """The cell that says who has a lock."""
    if status.is_min_hold:
        return "none: min_hold"
    return "free" if status.identifier is None else shortened(status.identifier)


def held_by(status: LockStatus) -> str:
    """The cell with the information about a holder; "" if there is none."""
    if status.owner is None:
        return ""
    return described(status.owner, held_for(status.owner, time.time()))


def time_left(status: LockStatus) -> str:
    """The cell that says until when a lock is held."""
    return "" if status.identifier is None else duration(status.remaining)


def fence(status: LockStatus) -> str:
    """The cell with the last fencing token."""
    return "" if status.fence is None else str(status.fence)


def _cells(status: LockStatus, fourth: str) -> list[str]:
    return [holder(status), time_left(status), str(status.waiting), fourth, status.lock_name]


def _watch(connection: Any, pattern: str, interval: float, as_json: bool) -> None:
    count = 0

    def found() -> Iterator[LockStatus]:
        nonlocal count
        count = 0
        for page in find_locks(connection.client, pattern, prefix=connection.prefix):
            count += len(page)
            yield from page

    def read(rows: int) -> list[LockStatus]:
        most = heapq.nsmallest(rows, found(), key=lambda one: (-one.waiting, one.lock_name))
        return list({one.lock_name: one for one in most}.values())

    def draw(locks: list[Rated]) -> Group:
        hidden = f", {count - len(locks)} of them not shown" if count > len(locks) else ""
        return Group(
            table(WATCHED_COLUMNS, map(_rated_cells, locks)),
            Text(f"{count} locks{hidden}", style="dim"),
        )

    titles = [column.title for column in WATCHED_COLUMNS]
    watch(connection, read, shower(draw, titles, _rated_cells, as_json), interval)


def _rated_cells(lock: Rated) -> list[str]:
    status, rate = lock
    return _cells(status, per_second(rate))
