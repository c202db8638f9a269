"""Run pytest, and run those tests alone that failed beside others on a real server.

Many tests hold leases of less than a second, and several run at a time. A machine that stops a
process for so long ends the lease, and the test fails for a reason of the machine's. A test that
also fails alone has failed. Tests of the model and of the double get no second run, unless such a
test has failed too: what it leaves behind, as sockets that are open, appears in later tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".pytest_cache"
FAILED = CACHE / "v/cache/lastfailed"
#: Where a failure may be the machine's.
REAL_TIME = (
    "tests/behaviour/",
    "tests/integration/",
    "tests/runtimes/",
    "tests/cli/",
    "tests/contrib/",
    "tests/topologies/",
    "tests/examples/",
    "tests/compat/",
    "tests/docs/",
    "tests/unit/",  # half of its files have threads, processes or sockets
)
MOST = 25


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    code = run(arguments)
    failed = sorted(json.loads(FAILED.read_text())) if code == 1 and FAILED.exists() else []
    if not failed or len(failed) > MOST or not any(test.startswith(REAL_TIME) for test in failed):
        return code
    again = run(failed)
    for test in failed:
        print(f"UNSTABLE: failed beside others, {'passed' if not again else 'run'} alone: {test}")
    return again


def run(arguments: list[str]) -> int:
    # tox would move the cache into its own folder.
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
