"""Which process a claim belongs to, also in hooks that run before those of the package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from redis_lock_decorators._flow import fork

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

#: A program that registers its hook before it imports the package.
PROGRAM = """
import os
found = []
os.register_at_fork(
    before=lambda: found.append(claim.is_of_this_process()),
    after_in_parent=lambda: found.append(claim.is_of_this_process()),
    after_in_child=lambda: in_child(),
)
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim import claim_on

claim = claim_on(b"a", 1)

def in_child():
    global own
    own = claim_on(b"a", 1)
    found.append(claim.is_of_this_process())

pid = os.fork()
if pid == 0:
    is_right = found == [True, False] and own.is_of_this_process() and "process_id" in vars(fork)
    os._exit(0 if is_right else 1)
assert os.waitpid(pid, 0)[1] == 0, "the child takes itself for its parent"
assert found == [True, True] and claim.is_of_this_process()
assert vars(fork)["process_id"] == os.getpid()
"""


@fork_only
def test_child_is_known_in_hooks_that_run_before_those_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr


@fork_only
def test_process_id_is_asked_of_the_system_while_any_thread_forks() -> None:
    fork._before()
    fork._before()
    fork._after_in_parent()
    still_forking = vars(fork).get("process_id")
    fork._after_in_parent()

    assert still_forking is None
    assert vars(fork)["process_id"] == fork.process_id == os.getpid()


def test_module_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'owner'"):
        fork.owner  # noqa: B018


#: The first processes of two PID namespaces, which have the same process ID.
SAME_ID = """
import os
os.getpid = lambda: 1
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim import claim_on

claims = []
for generation in range(3):
    claims.append(claim_on(b"a", 1))
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
own = claim_on(b"a", 1)
is_right = own.is_of_this_process() and not any(one.is_of_this_process() for one in claims)
os._exit(0 if is_right and fork.process_id % fork.ADDED == 1 else 1)
"""


@fork_only
def test_child_with_the_process_id_of_its_parent_is_another_process() -> None:
    assert subprocess.run([sys.executable, "-c", SAME_ID], check=False).returncode == 0
