"""The code of docs/how-to/monitoring.rst runs, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "monitoring.rst"
#: The page with the table of the metrics, which the other one includes.
EVENTS = DOCS / "reference" / "events.rst"
#: Prints what the page's endpoint serves, when all events have been reported.
SHOW = """
import urllib.request
from redis_lock_decorators._io.background.hook_calls import flush

assert flush(10)
with urllib.request.urlopen(f"http://localhost:{server.server_port}/metrics") as reply:
    print("metrics:", reply.read().decode())
"""


def test_code_of_the_page_runs(server: Any) -> None:
    blocks = re.findall(
        r"^\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", PAGE.read_text("utf-8"), re.MULTILINE
    )
    program = "".join(map(textwrap.dedent, blocks)) + SHOW

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "REDIS_URL": server.url, "METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    printed, _, metrics = done.stdout.partition("metrics:")
    assert 'redis_lock_acquired_total{by="free",lock="order:{order_id}"} 1.0' in metrics
    assert 'redis_lock_held{lock="order:{order_id}"} 0.0' in metrics
    assert "invoice" not in metrics  # its own hooks replace the configured ones
    spans = [json.loads(text) for text in re.findall(r"^{\n.*?^}", printed, re.M | re.S)]
    by_name = {span["name"]: span for span in spans}
    assert sorted(by_name) == ["checkout", "redis_lock.hold", "redis_lock.wait"]
    caller = by_name["checkout"]["context"]["span_id"]
    for name in ("redis_lock.hold", "redis_lock.wait"):
        assert by_name[name]["parent_id"] == caller
        assert by_name[name]["attributes"]["redis_lock.name"] == "invoice:12"


def test_page_names_all_metrics() -> None:
    from prometheus_client import CollectorRegistry

    from redis_lock_decorators.instrumentation.prometheus import PrometheusHook

    registry = CollectorRegistry()
    PrometheusHook(registry)
    text = EVENTS.read_text("utf-8")

    assert ".. include:: ../reference/events.rst" in PAGE.read_text("utf-8")
    assert [family.name for family in registry.collect() if f"\n``{family.name}" not in text] == []
