"""The documentation, built once as a site for all tests of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site; skips the test if the extra ``docs`` is not installed."""
    for needed in ("furo", "sphinx_copybutton", "sphinx_design", "celery", "django", "click"):
        pytest.importorskip(needed, reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"),
            *("-d", folder / "doctrees", ROOT / "docs", folder / "html"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"
