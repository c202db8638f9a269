"""Each query of the Grafana dashboard finds what a real run exposes."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.leftovers import PATIENCE
from support.promql import Scrape, Vector, evaluated, scraped

from redis_lock_decorators import LockLostError, Locks, current_lease
from redis_lock_decorators._io.background.hook_calls import flush

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from redis_lock_decorators.instrumentation.prometheus import PrometheusHook

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana"
DASHBOARD = json.loads((GRAFANA / "redis-locks.json").read_text())
#: The rules of the page; each compares the results of queries with numbers.
ALERTS = [
    " ".join(rule.split())
    for rule in re.findall(
        r"expr: (?:>-\n)?(.+(?:\n {14}\S.*)*)",
        (GRAFANA.parent / "how-to" / "monitoring.rst").read_text("utf-8"),
    )
]
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
#: The metrics, without the suffixes of histograms.
METRICS = {
    *("redis_lock_wait_seconds", "redis_lock_hold_seconds"),
    *("redis_lock_waiting", "redis_lock_held"),
    *("redis_lock_acquired_total", "redis_lock_timed_out_total"),
    *("redis_lock_renewals_late_total", "redis_lock_lost_total"),
}
#: The template of the locks.
TEMPLATE = "dashboard:{number}"


class Run(NamedTuple):
    """What two scrapes of a program found, before and after its work."""

    before: Scrape
    after: Scrape
    seconds: float

    def query(self, query: str) -> Vector:
        return evaluated(query, self.before, self.after, self.seconds)


@pytest.fixture(scope="module")
def run(server: Any) -> Iterator[Run]:
    """A program that waits, holds, times out, renews late and loses; a lock is held at the end."""
    registry, began = CollectorRegistry(), time.monotonic()
    locks = Locks(client=server.client(), hooks=[PrometheusHook(registry)], expire=0.6)
    before = scraped(registry)

    @locks.redis_lock(TEMPLATE, on_busy="skip", acquire_time=0.5)
    def work(number: int, seconds: float = 0.002) -> None:
        time.sleep(seconds)

    @locks.redis_lock(TEMPLATE)
    def lose(number: int) -> None:
        lease = current_lease()
        assert lease is not None
        server.client().delete(lease.key)

    def several() -> None:
        for _ in range(10):
            work(1)

    threads = [threading.Thread(target=several) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lease = work.lock_for(2).acquire()
    work(2)  # times out
    server.client().execute_command("CLIENT", "PAUSE", 250, "WRITE")  # delays the next renewal
    with contextlib.suppress(LockLostError):
        lose(3)
    assert lease is not None
    assert flush(PATIENCE)
    yield Run(before, scraped(registry), time.monotonic() - began)
    with contextlib.suppress(LockLostError):
        lease.release()


@pytest.mark.parametrize("query", QUERIES)
def test_query_finds_what_a_real_run_exposes(run: Run, query: str) -> None:
    found = run.query(query)

    assert found
    assert all(value >= 0 for value in found.values() if not math.isnan(value))
    assert any(not math.isnan(value) for value in found.values())
    assert {dict(labels).get("lock", TEMPLATE) for labels in found} == {TEMPLATE}


def test_results_are_those_of_the_run(run: Run) -> None:
    by_title = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]}

    def result(title: str) -> float:
        (value,) = run.query(by_title[title]).values()
        return value

    assert result("Held now") == 1
    assert result("Waiting now") == 0
    assert result("Lost in this range") >= 1
    assert round(result("Acquisitions per second") * run.seconds) >= 42
    assert 0 < result("Part that timed out") < 0.5
    assert 0.001 <= result("Time held, 95th percentile") < 10
    ways = run.query(by_title["How locks are acquired"])
    assert round(sum(ways.values()) * run.seconds) >= 42


def test_dashboard_shows_every_metric() -> None:
    text = json.dumps(DASHBOARD["panels"])

    assert sorted(metric for metric in METRICS if metric not in text) == []


def test_queries_use_no_unknown_metric(run: Run) -> None:
    used = {
        name
        for (query,) in (p.values for p in QUERIES)
        for name in re.findall(r"redis_lock_\w+", query)
    }

    assert sorted(used - set(run.after)) == []
    assert DASHBOARD["templating"]["list"][1]["definition"] == "label_values(redis_lock_held, lock)"


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        own = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        assert panel["description"]
        cells |= own


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_finds_what_a_real_run_exposes(run: Run, alert: str) -> None:
    for comparison in alert.split(" and "):
        query, _ = re.split(r" (?:>|==) ", comparison)

        assert set(run.query(query)) == {frozenset({("lock", TEMPLATE)})}


def test_four_alerts_are_on_the_page() -> None:
    assert len(ALERTS) == 4


def titles(picture: Path) -> list[str]:
    found = re.findall(r'class="title"[^>]*>([^<]*)<', picture.read_text("utf-8"))
    return [unescape(title) for title in found]


def test_picture_has_every_panel() -> None:
    shown = [DASHBOARD["title"], *(panel["title"] for panel in DASHBOARD["panels"])]

    assert titles(GRAFANA / "redis-locks.svg") == shown


@pytest.mark.skipif(sys.platform == "win32", reason="needs an embedded server")
def test_picture_can_be_drawn_anew(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.svg"
    command = [sys.executable, GRAFANA / "draw.py", "--seconds", "1", "--output", drawn]

    subprocess.run(command, check=True, timeout=120)

    assert titles(drawn) == titles(GRAFANA / "redis-locks.svg")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("redis_lock_missing", KeyError),
        ('redis_lock_held{job="x"}', KeyError),
        ("sum by (le) (redis_lock_held)", KeyError),
        ('redis_lock_held{lock="another"}', AssertionError),
        ("sum(redis_lock_held", AssertionError),
    ],
)
def test_wrong_query_is_noticed(run: Run, query: str, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        run.query(query)
