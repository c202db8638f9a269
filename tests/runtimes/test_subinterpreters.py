"""Subinterpreters: where threads are not allowed, locks that need one are refused immediately."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.fronts import LEGACY

import redis_lock_decorators

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 12), reason="subinterpreters need Python 3.12"),
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 does not support them"),
]

#: Runs source text in a subinterpreter of a kind; arguments: port, kind, text.
PROGRAM = """
import os, sys
port, kind, text = int(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
arguments = () if kind == "isolated" else ("legacy",)
if sys.version_info < (3, 13):
    number = interpreters.create(isolated=kind == "isolated")
else:
    number = interpreters.create(*arguments)
text = f"import sys; sys.path[:] = {sys.path!r}; port = {port}\\n" + text
failed = interpreters.run_string(number, text)
if failed is not None:
    raise SystemExit(str(failed))
interpreters.destroy(number)
print("destroyed", flush=True)
os._exit(0)  # Python 3.12.1 crashes at exit after an isolated interpreter that imported ssl
"""

COMMON = """
import time, redis
from redis_lock_decorators import ConfigurationError, RedisLock
client, other = redis.Redis(port=port), redis.Redis(port=port)
"""

RENEWED = (
    COMMON
    + """
with RedisLock("renewed", client=client, expire=0.9) as lease:
    time.sleep(1.2)
    assert lease.owned()
time.sleep(1.5)  # the background thread ends after a second without work
"""
)

REFUSED = (
    COMMON
    + """
for options in ({}, {"auto_renew": False, "on_lost": print}):
    try:
        RedisLock("refused", client=client, **options).acquire()
    except ConfigurationError as error:
        assert "auto_renew=False" in str(error), error
    else:
        raise SystemExit("it was not refused")
assert not client.exists("sys:lock:refused")
with RedisLock("plain", client=client, auto_renew=False) as lease:
    assert lease.owned()
    assert RedisLock("plain", client=other, auto_renew=False, wait="poll").acquire(0.1) is None
"""
)


def ran(port: int, kind: str, text: str) -> subprocess.CompletedProcess[str]:
    package = os.path.dirname(redis_lock_decorators.__path__[0])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(port), kind, text],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("kind", "text"), [("legacy", RENEWED), ("isolated", REFUSED)])
def test_locks_in_a_subinterpreter(server, kind, text):
    done = ran(server.port, kind, text)

    assert (done.returncode, done.stdout) == (0, "destroyed\n"), done.stdout + done.stderr
