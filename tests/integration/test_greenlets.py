"""Programs whose threads are greenlets: renewal, notification of waiters and reports of losses."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from support.fronts import LEGACY
from support.greenlets import KINDS
from support.installed import skip_without
from support.native_jobs import LIBRARIES

#: Greenlets, and seconds of work: ``GREENLET_SECONDS=60`` for a long run of many.
SECONDS = float(os.environ.get("GREENLET_SECONDS", "4"))
COUNT = 200 if SECONDS > 10 else 40
COMMAND = (sys.executable, "-W", "ignore", "-m")

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 leaves sockets to the collector")


def ran(kind: str, port: int) -> dict[str, int]:
    """The result of a program of a kind."""
    return result_of("support.greenlets", kind, str(port), str(SECONDS), str(COUNT))


def result_of(*arguments: str) -> dict[str, Any]:
    """Run a program and return the result that it prints."""
    tests = pathlib.Path(__file__).parents[1]
    paths = [tests, *filter(None, [os.environ.get("PYTHONPATH")])]
    program = subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=tests,  # a folder that does not contain the package
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
    )
    assert program.returncode == 0, program.stderr
    found: dict[str, Any] = ast.literal_eval(program.stdout)
    return found


@pytest.mark.timeout(SECONDS + 90)
@pytest.mark.parametrize("kind", KINDS)
def test_greenlets_wait_hold_renew_and_are_notified_of_losses(frail, kind, record_property):
    library = kind.partition("-")[0]
    skip_without(library)

    found = ran(kind, frail.port)

    record_property("found", f"{kind}: {found}")
    assert found.get("ended"), found
    assert [name for name in found if name.startswith(("failed", "lost"))] == []
    assert (found["overlaps"], found["left"]) == (0, 0)
    assert min(found[name] for name in ("queue", "cohort", "kept", "loops")) > 4, found
    assert (
        found["losses noticed in the block"]
        == found["losses raised at the end"]
        == found["on_lost"]
        > 1
    )


@pytest.mark.timeout(SECONDS + 90)
@pytest.mark.parametrize("library", LIBRARIES)
def test_native_threads_and_greenlets_work_without_each_others_hubs(frail, library):
    skip_without(library)

    assert result_of("support.native_jobs", library, str(frail.port)) == {
        "reported as lost": ["lost"],
        "renewed": True,
        "waited and renewed": True,
        "renewed meanwhile": True,
    }


@pytest.mark.timeout(SECONDS + 90)
@pytest.mark.parametrize("patched", ["all", "nothread"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_lock_released_while_greenlets_switch_is_free(frail, library, patched):
    skip_without(library)

    found = result_of("support.hub_works", library, str(frail.port), patched)

    assert found == {"left": [], "errors": [], "ends": True}


@pytest.mark.timeout(SECONDS + 90)
@pytest.mark.parametrize("library", LIBRARIES)
def test_locks_that_need_a_thread_are_refused_if_only_sockets_are_green(frail, library):
    skip_without(library)

    found = result_of("support.half_green", library, str(frail.port))

    assert found == {
        "refused": ["x: no thread can renew lock 'x' or "],
        "entered": [1] * 20,
        "drop-in": 1,
        "keys": [],
        "threads": 1,
    }


@pytest.mark.timeout(SECONDS + 90)
def test_lease_is_renewed_though_patching_precedes_its_first_renewal(frail):
    skip_without("gevent")

    found = result_of("support.late_green", str(frail.port))

    assert found == {"renewed": True, "reported as lost": ["lost"], "renewed anew": True}
