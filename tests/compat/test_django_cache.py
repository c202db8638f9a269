"""The cache of python-redis-lock and its replacement, in test cases of Django."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fronts import LEGACY

import redis_lock_decorators

PATHS = [Path(redis_lock_decorators.__file__).parents[1], Path(__file__).parents[1]]

pytestmark = pytest.mark.skipif(LEGACY, reason="django-redis needs a newer redis-py")


def test_cases_of_django_pass(server: Any) -> None:
    for needed in ("django", "django_redis", "redis_lock"):
        pytest.importorskip(needed)
    environment = {"PYTHONPATH": os.pathsep.join(map(str, PATHS)), "REDIS_URL": server.url}

    done = subprocess.run(
        [sys.executable, "-m", "unittest", "support.django.lock_caches"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "Ran 10 tests" in done.stdout
