"""``redis-lock run`` as a process that adopts orphans: PID 1 of a container, or a subreaper."""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Program
from support.local_servers import is_running
from support.waiting import until

from redis_lock_decorators import RedisLock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and subreapers")

OPTIONS = ["--expire", "1", "--kill-after", "0.3"]
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
PR_SET_CHILD_SUBREAPER = 36
SUBREAPER = [
    *(sys.executable, "-c"),
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({PR_SET_CHILD_SUBREAPER}, 1, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])",
]
#: Commands with background processes, which become orphans when the command ends.
TREES = {
    "background processes": "sleep 60 & sleep 60 & echo inside; wait",
    "deep": 'sh -c "sleep 60; true" & echo inside; sh -c "sleep 60; true"; true',
    "stubborn": 'trap "" TERM; sleep 60 & echo inside; wait; sleep 60',
    "single": "echo inside; exec sleep 60",
}
#: A zombie in the command's group, whose parent has left the group and does not reap it.
ZOMBIE = """if True:
    import os, time
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(60)
        os.setpgid(0, 0)
        os.closerange(0, 3)
        time.sleep(10)
        os._exit(0)
    print("inside", flush=True)
    time.sleep(60)
"""
#: Has orphans in other sessions; succeeds when none of them is a zombie.
DAEMONS = """
for _ in 1 2 3; do (setsid sh -c 'sleep 0.1' &); done
sleep 0.5
for _ in $(seq 100); do
    grep -q '^State:.Z' /proc/[0-9]*/status || exit 0
    sleep 0.1
done
exit 1
"""


@functools.cache
def has_namespaces() -> bool:
    found = shutil.which("unshare")
    return bool(found) and subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


def adopting(kind: str, name: str, url: str, *command: str) -> Program:
    if kind == "PID 1" and not has_namespaces():
        pytest.skip("needs the right to make PID namespaces")
    beginning = NAMESPACE if kind == "PID 1" else SUBREAPER
    return Program(command=[*beginning, *PROGRAM, "run", name, *OPTIONS, "--", *command], url=url)


@pytest.mark.parametrize("kind", ["PID 1", "subreaper"])
@pytest.mark.parametrize("tree", TREES)
def test_loss_ends_a_run_that_adopts_orphans(
    server: Any, direct: Any, name: str, kind: str, tree: str
) -> None:
    with adopting(kind, name, server.url, "sh", "-c", TREES[tree]) as program:
        program.until("inside")
        RedisLock(name, client=direct).force_release()

        assert program.code() == 70
        assert "Traceback" not in program.errors()


def test_pid_1_reaps_orphans_while_the_command_runs(server: Any, name: str) -> None:
    with adopting("PID 1", name, server.url, "sh", "-c", DAEMONS) as program:
        assert program.code() == 0


def test_loss_ends_a_run_whose_command_left_a_zombie_that_another_must_reap(
    server: Any, direct: Any, name: str
) -> None:
    command = ["run", name, *OPTIONS, "--", sys.executable, "-c", ZOMBIE]
    with Program(*command, url=server.url) as program:
        program.until("inside")
        RedisLock(name, client=direct).force_release()

        assert program.code() == 70


def test_run_that_is_stopped_after_a_loss_leaves_no_command(
    server: Any, direct: Any, name: str
) -> None:
    script = 'trap "kill -STOP $PPID" TERM; echo $$; while :; do sleep 0.1; done'
    with Program("run", name, *OPTIONS, "--", "sh", "-c", script, url=server.url) as program:
        pid = int(program.until("\n"))
        RedisLock(name, client=direct).force_release()

        until(lambda: not is_running(pid))
        program.send(signal.SIGCONT)
        assert program.code() == 70
