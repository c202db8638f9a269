"""``redis-lock run`` when the lock is lost, or ``run`` itself is killed or stopped."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Program
from support.local_servers import is_running
from support.waiting import until

from redis_lock_decorators import RedisLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="run needs fork")

#: A command with a background process; both ignore SIGTERM if the first argument says so.
FAMILY = '[ "$1" = stubborn ] && trap "" TERM; sleep 60 & echo $! $$; wait; exit 0'
#: Opens more files than a system usually permits, and becomes the given program.
MANY_FILES = """
import os, resource, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
for _ in range(1100):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[1], sys.argv[1:])
"""
SHORT = ["--expire", "1", "--kill-after", "0.3"]


def family(name: str, url: str, kind: str = "", *options: str) -> Program:
    return Program("run", name, *SHORT, *options, "--", "sh", "-c", FAMILY, "sh", kind, url=url)


def pids(program: Program) -> list[int]:
    return [int(pid) for pid in program.until("\n").split()]


def none_runs(some: list[int]) -> bool:
    return not any(map(is_running, some))


@pytest.mark.parametrize("kind", ["", "stubborn"])
def test_loss_ends_the_group_of_the_command(server: Any, direct: Any, name: str, kind: str) -> None:
    with family(name, server.url, kind) as program:
        some = pids(program)
        RedisLock(name, client=direct).force_release()

        assert program.code() == 70
        assert none_runs(some)
        errors = program.errors()
    assert errors.startswith(f"redis-lock: the lease of lock '{name}' ended before the work did")
    assert errors.count("\n") == 1


def test_loss_waits_for_background_processes_of_a_command_that_has_ended(
    server: Any, direct: Any, name: str
) -> None:
    command = ["sh", "-c", "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done'; wait"]
    with Program("run", name, *SHORT, "--", *command, url=server.url) as program:
        some = pids(program)
        RedisLock(name, client=direct).force_release()

        assert program.code() == 70
        assert none_runs(some)


def test_command_that_ends_cleanly_after_a_loss_gives_70(
    server: Any, direct: Any, name: str
) -> None:
    command = [
        "sh",
        "-c",
        'trap "echo cleaned; exit 0" TERM; echo inside; while :; do sleep .1; done',
    ]
    with Program("run", name, *SHORT, "--", *command, url=server.url) as program:
        program.until("inside")
        direct.delete(f"sys:lock:{name}")

        program.until("cleaned")
        assert program.code() == 70


def test_stopped_command_ends_after_a_loss(server: Any, direct: Any, name: str) -> None:
    with family(name, server.url) as program:
        some = pids(program)
        os.killpg(some[1], signal.SIGSTOP)
        direct.delete(f"sys:lock:{name}")

        assert program.code() == 70
        assert none_runs(some)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_server_that_dies_ends_the_command_at_the_deadline(
    frail: Any, name: str, fault: str
) -> None:
    with family(name, frail.url) as program:
        some = pids(program)
        getattr(frail, fault)()

        assert program.code() == 70
        assert none_runs(some)
        assert "Traceback" not in program.errors()


def test_server_that_is_gone_at_the_end_does_not_change_the_status(frail: Any, name: str) -> None:
    command = ["sh", "-c", "echo inside; read line; exit 3"]
    with Program("run", name, "--", *command, url=frail.url) as program:
        program.until("inside")
        frail.kill()
        program.write("\n")

        assert program.code() == 3
        assert "could not be released" in program.errors()


@pytest.mark.parametrize("kind", ["", "stubborn"])
def test_run_that_is_killed_takes_its_command_with_it(
    server: Any, direct: Any, name: str, kind: str
) -> None:
    with family(name, server.url, kind, "--expire", "60") as program:
        some = pids(program)
        program.send(signal.SIGKILL)

        assert program.code() == -signal.SIGKILL
        until(lambda: none_runs(some))
        assert direct.exists(f"sys:lock:{name}")  # until its lease expires
        assert program.errors() == "redis-lock: redis-lock was killed: the command gets SIGTERM\n"


def test_run_with_very_many_files_takes_its_command_with_it(server: Any, name: str) -> None:
    """Its guard would keep the pipe open whose end says that it was killed."""
    own = [*PROGRAM, "run", name, "--expire", "60", "--", "sh", "-c", FAMILY]
    with Program(command=[sys.executable, "-c", MANY_FILES, *own], url=server.url) as program:
        some = pids(program)
        program.send(signal.SIGKILL)

        assert program.code() == -signal.SIGKILL
        until(lambda: none_runs(some))


def test_run_that_is_stopped_leaves_no_command_without_a_lock(
    server: Any, direct: Any, name: str
) -> None:
    # The command does it first, when run has just started it.
    stops = f"kill -STOP $PPID; {FAMILY}"
    with Program("run", name, *SHORT, "--", "sh", "-c", stops, url=server.url) as program:
        some = pids(program)

        until(lambda: none_runs(some))
        until(lambda: not direct.exists(f"sys:lock:{name}"))
        program.send(signal.SIGCONT)
        assert program.code() == 70


def test_run_that_is_killed_while_it_waits_starts_nothing(
    server: Any, direct: Any, name: str
) -> None:
    command = ["run", name, "--on-busy", "wait", "--", "echo", "inside"]
    with RedisLock(name, client=direct), Program(*command, url=server.url) as program:
        until(lambda: direct.pubsub_channels())
        program.send(signal.SIGKILL)
        assert program.process.stdout is not None

        assert program.process.stdout.read() == b""  # all its processes have ended
