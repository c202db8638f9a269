"""The programs that how-to pages include print what the pages say of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.installed import skip_without

from redis_lock_decorators._rules.permissions import rules
from redis_lock_decorators.testing import LocalServer

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


PRINTED = {
    "greenlets": "order 42 is charged\norder 42 is charged\norder 43 is charged\n",
    "forks": ("in the child: lost True, free False, owned False\nin the parent: owned True\n"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_program_prints_what_its_page_says(name: str) -> None:
    if name == "greenlets":
        skip_without("gevent")
    elif not hasattr(os, "fork"):
        pytest.skip("this system has no fork")

    with LocalServer() as server:
        done = subprocess.run(
            [sys.executable, HOW_TO / f"{name}.py"],
            env={**os.environ, "REDIS_URL": server.url, "REDIS_LOCK_CONNECTION": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.stdout == PRINTED[name], done.stderr


def test_every_program_is_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in HOW_TO.glob("*.rst"))

    assert [
        path.name for path in HOW_TO.glob("*.py") if f"literalinclude:: {path.name}" not in text
    ] == []


def test_user_of_the_permissions_page_has_the_rights_of_waiters() -> None:
    page = (HOW_TO / "permissions.rst").read_text("utf-8")
    literal = page.partition("rule = (")[2].partition("\n    )\n")[0]

    given = "".join(re.findall(r'"(.*)"', literal)).split()

    assert given == list(rules("sys:lock:", ["waiting in queues and cohorts"]))
