"""``--watch``: show the state of locks again and again, until the user interrupts it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.live import Live

from redis_lock_decorators.cli.output import console, print_json, print_lines
from redis_lock_decorators.cli.rates import SAMPLED, Rated, Rates, Sample
from redis_lock_decorators.cli.signals import ended_by_signals
from redis_lock_decorators.inspection import LockStatus, hand_over_times

#: How many locks are shown in a pipe, where there is no height.
MOST_ROWS = 50
#: Lines of a terminal that have no lock: the heading, the line below, the one of the cursor.
OTHER_ROWS = 3

#: Shows the locks of one moment.
Show = Callable[[list[Rated]], None]


def watch(
    connection: Any,
    read: Callable[[int], Iterable[LockStatus]],
    show: AbstractContextManager[Show],
    interval: float,
) -> None:
    """Show locks every ``interval`` seconds.

    Args:
        connection: of the command line.
        read: returns the state of so many locks at most.
        show: shows them.
        interval: in seconds.
    """
    rates, rows = Rates(), rows_at_once()
    with ended_by_signals(), show as show_now:
        while True:
            show_now(rates.add([_sample(connection, status) for status in read(rows)]))
            time.sleep(interval)


def rows_at_once() -> int:
    """How many locks can be shown at once."""
    screen = console()
    return max(1, screen.height - OTHER_ROWS) if screen.is_terminal else MOST_ROWS


def shower(
    draw: Callable[[list[Rated]], RenderableType],
    titles: Iterable[str],
    row: Callable[[Rated], Iterable[str]],
    as_json: bool,
) -> AbstractContextManager[Show]:
    """Return what shows locks: on a terminal, in a pipe, or as JSON.

    Args:
        draw: makes what a terminal shows.
        titles: the headings in a pipe.
        row: the cells of a lock in a pipe.
        as_json: print objects.
    """
    if as_json:
        return nullcontext(_print_objects)
    if console().is_terminal:
        return _live(draw)
    return _lines(titles, row)


@contextmanager
def _live(draw: Callable[[list[Rated]], RenderableType]) -> Iterator[Show]:
    with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
        live.console.show_cursor(True)  # so that a program that is killed leaves it visible
        yield lambda locks: live.update(draw(locks), refresh=True)


@contextmanager
def _lines(titles: Iterable[str], row: Callable[[Rated], Iterable[str]]) -> Iterator[Show]:
    print_lines([["time", *titles]])

    def show(locks: list[Rated]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        if locks:
            print_lines([now, *row(lock)] for lock in locks)

    yield show


def _print_objects(locks: list[Rated]) -> None:
    now = time.time()
    print_json(
        *({"time": now, **asdict(status), "hand_overs_per_second": rate} for status, rate in locks)
    )


def _sample(connection: Any, status: LockStatus) -> Sample:
    times = hand_over_times(
        connection.client, status.lock_name, prefix=connection.prefix, count=SAMPLED
    )
    return Sample(status, time.monotonic(), times)
