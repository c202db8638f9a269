"""The integration of Django, in test cases of Django."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redis_lock_decorators

pytest.importorskip("django")

PATHS = [Path(redis_lock_decorators.__file__).parents[1], Path(__file__).parents[1]]

#: A setting whose application is not installed.
FORGOTTEN = """
from support.django.project import set_up
set_up(INSTALLED_APPS=[])
from redis_lock_decorators.contrib.django import until_commit
with until_commit("used"):
    pass
"""


def run(server: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of the tests."""
    environment = {"PYTHONPATH": os.pathsep.join(map(str, PATHS)), "REDIS_URL": server.url}
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("cases", ["commits", "views", "settings"])
def test_cases_of_django_pass(server, cases):
    done = run(server, "-m", "unittest", f"support.django.{cases}")

    assert done.returncode == 0, done.stdout
    assert "OK" in done.stdout


def test_setting_without_application_is_refused(server):
    done = run(server, "-c", FORGOTTEN)

    assert "add redis_lock_decorators.contrib.django to INSTALLED_APPS" in done.stdout
