"""Draw the dashboard with what real locks expose: ``python docs/grafana/draw.py``.

Several threads use locks of an embedded server, whose metrics are scraped twice a second. The
queries of each panel are evaluated over these scrapes, as Grafana and Prometheus would do it, and
drawn at the panel's place. The picture is ``redis-locks.svg``, next to the dashboard.

It needs the extras ``prometheus`` and ``embedded``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import platform
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import redis
from prometheus_client import CollectorRegistry

from redis_lock_decorators.testing import LocalServer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from contention.picture import document
from load import Load
from panels import STYLE, WIDTH, Series, drawn, height, text
from support.promql import Scrape, Vector, evaluated, scraped

DASHBOARD = HERE / "redis-locks.json"
#: Seconds between two scrapes.
INTERVAL = 0.5
#: The ranges of the queries in seconds; ``$__rate_interval`` is at least four scrapes in Grafana.
RANGES = {"$__rate_interval": 4 * INTERVAL, "$__range": math.inf, "1m": 60.0}
#: Pixels above the panels.
HEAD = 56


class Sample(NamedTuple):
    """A scrape, and when it was made in seconds since the first one."""

    at: float
    scrape: Scrape


def recorded(server: LocalServer, seconds: float) -> list[Sample]:
    """The scrapes of a program that uses locks for some seconds."""
    registry = CollectorRegistry()
    with Load(server, registry).running():
        began, samples = time.monotonic(), []
        while (at := time.monotonic() - began) <= seconds + INTERVAL / 2:
            samples.append(Sample(at, scraped(registry)))
            time.sleep(INTERVAL - at % INTERVAL)
    return samples


def series(panel: dict[str, Any], samples: list[Sample]) -> Series:
    """The points of each curve of a panel."""
    return {
        name: points
        for target in panel["targets"]
        for name, points in sorted(_named(target, samples).items())
    }


def _named(target: dict[str, Any], samples: list[Sample]) -> Series:
    """The points of the curves of one query, by their names in the legend."""
    found: Series = {}
    for at, vector in results(target["expr"], samples):
        for labels, value in vector.items():
            found.setdefault(_legend(target, dict(labels)), []).append((at, value))
    return found


def _legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels[match[1]], target["legendFormat"])


def results(query: str, samples: list[Sample]) -> Iterator[tuple[float, Vector]]:
    """The result of a query at each scrape but the first."""
    ranges = re.findall(r"\[(.+?)\]", query)
    span = RANGES[ranges[0]] if ranges else 0.0
    for number, (at, after) in enumerate(samples[1:], start=1):
        first = next(s for s in samples if s.at >= at - span - INTERVAL / 2)
        before = first if ranges else samples[number - 1]
        yield at, evaluated(query, before.scrape, after, at - before.at)


def picture(dashboard: dict[str, Any], samples: list[Sample], note: str) -> str:
    """The dashboard over these scrapes."""
    panels, end = dashboard["panels"], samples[-1].at
    shapes = [
        '<rect class="page" width="100%" height="100%"/>',
        text(12, 24, dashboard["title"], "title"),
        text(12, 45, note, "note"),
        f'<g transform="translate(0 {HEAD})">',
    ]
    for panel in panels:
        shapes += drawn(panel, series(panel, samples), end)
    return document(WIDTH, HEAD + height(panels) + 4, STYLE, [*shapes, "</g>"])


def made_on(server: LocalServer, seconds: float) -> str:
    """When and on what the picture is made."""
    info = server.client().info("server")
    version = info.get("valkey_version") or info["redis_version"]
    name = f"{info.get('server_name', 'redis').capitalize()} {version}"
    return (
        f"{datetime.date.today():%Y-%m-%d}: {seconds:g} s of docs/grafana/load.py on {name}, "
        f"redis-py {redis.__version__}, Python {platform.python_version()}, {platform.system()}; "
        f"a scrape every {INTERVAL:g} s"
    )


def main() -> None:
    """Make the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30, help="length of the run (30)")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "redis-locks.svg")
    options = parser.parse_args()
    with LocalServer() as server:
        note = made_on(server, options.seconds)
        samples = recorded(server, options.seconds)
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    options.output.write_text(picture(dashboard, samples, note), encoding="utf-8")


if __name__ == "__main__":
    main()
