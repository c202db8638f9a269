"""Print rows: a table on a terminal, lines with tabs in a pipe, JSON if asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from redis_lock_decorators.cli.texts import shown


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: the heading.
        width: in characters; 0 for as much as there is, which the last columns share.
        is_number: align it to the right.
    """

    title: str
    width: int = 0
    is_number: bool = False


class Pages:
    """Print pages of rows as they come, all with the same columns."""

    def __init__(self, columns: Iterable[Column], has_heading: bool = True) -> None:
        self._columns = list(columns)
        self._console = console()
        self._is_first = has_heading

    def add(self, rows: Iterable[Iterable[str]]) -> None:
        """Print a page; the first has the headings."""
        if self._console.is_terminal:
            self._console.print(table(self._columns, rows, has_heading=self._is_first))
        else:
            titles = [[column.title for column in self._columns]] if self._is_first else []
            print_lines([*titles, *rows])
        self._is_first = False


def table(
    columns: Iterable[Column], rows: Iterable[Iterable[str]], has_heading: bool = True
) -> Table:
    """Return a table whose last column is cut off where the terminal ends."""
    found = Table(box=None, expand=True, show_header=has_heading, pad_edge=False)
    for column in columns:
        found.add_column(
            column.title,
            width=column.width or None,
            ratio=None if column.width else 1,  # otherwise long texts would narrow the others
            justify="right" if column.is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        found.add_row(*map(shown, row))
    return found


def print_lines(rows: Iterable[Iterable[str]]) -> None:
    """Print rows with a tab between the cells."""
    click.echo("\n".join("\t".join(map(shown, row)) for row in rows))


def console() -> Console:
    """A console for the standard output of this moment."""
    return Console(highlight=False, markup=False)


def print_json(*values: Mapping[str, Any]) -> None:
    """Print each object on a line."""
    if values:
        click.echo("\n".join(json.dumps(value, ensure_ascii=True) for value in values))


def note(text: str) -> None:
    """Print a message on the standard error.

    Passwords are to be removed before, from the texts of other code only: names of locks may look
    like them, such as "reset_password:42".
    """
    click.echo(f"redis-lock: {shown(text)}", err=True)


def fail(text: str, code: int) -> NoReturn:
    """End with a message and an exit code."""
    note(text)
    sys.exit(code)
