"""Durations that are given on the command line, in seconds."""

from __future__ import annotations

import math
from typing import Any

import click


def seconds(text: str) -> float:
    """Return a duration that is given as text."""
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found < math.inf:
        raise click.BadParameter(f"{text!r} is not a number of seconds")
    return found


class Between(click.FloatRange):
    """A duration within limits, which are shown in the help."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):  # no comparison tells it
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found
