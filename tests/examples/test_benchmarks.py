"""Every benchmark can at least be started; the figures themselves are measured by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.fronts import LEGACY

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.skipif(LEGACY, reason="benchmarks use redis-py of today")
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark_explains_its_options(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path, "--help"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "--help" in done.stdout
