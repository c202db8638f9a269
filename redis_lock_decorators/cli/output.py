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
        ratio: its share of the width that is left; 0 for a fixed ``width``.
        width: in characters, if the ratio is 0.
        is_number: align it to the right.
    """

    title: str
    ratio: int = 0
    width: int = 0
    is_number: bool = False


class Pages:
    """Print pages of rows as they come, all with the same columns."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = list(columns)
        self._console = console()
        self._is_first = True

    def add(self, rows: Iterable[Iterable[str]]) -> None:
        """Print a page; the first has the headings."""
        texts = [[shown(text) for text in row] for row in rows]
        if self._console.is_terminal:
            self._console.print(self._table(texts))
        else:
            titles = [[column.title for column in self._columns]] if self._is_first else []
            for line in titles + texts:
                click.echo("\t".join(line))
        self._is_first = False

    def _table(self, rows: list[list[str]]) -> Table:
        table = Table(box=None, expand=True, show_header=self._is_first, pad_edge=False)
        for column in self._columns:
            table.add_column(
                column.title,
                ratio=column.ratio or None,
                width=column.width or None,
                justify="right" if column.is_number else "left",
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in rows:
            table.add_row(*row)
        return table


def console() -> Console:
    """A console for the standard output of this moment."""
    return Console(highlight=False, markup=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object on one line."""
    click.echo(json.dumps(value, ensure_ascii=True))


def note(text: str) -> None:
    """Print a message on the standard error."""
    click.echo(f"redis-lock: {shown(text)}", err=True)


def fail(text: str, code: int) -> NoReturn:
    """End with a message and an exit code."""
    note(text)
    sys.exit(code)
