"""``redis-lock run`` and signals: before the lock is held, and while the command runs."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Program, ran, state_of
from support.local_servers import is_running
from support.waiting import until

from redis_lock_decorators import RedisLock
from redis_lock_decorators.inspection import lock_status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="run needs fork")

#: It ends after half a minute, also if nothing stops it.
WAIT = "n=0; until read line || [ $n -gt 300 ]; do n=$((n+1)); sleep .1; done"
TRAP = 'trap "echo got {0}" {0}; echo inside; ' + WAIT + "; exit 5"


def is_held(client: Any, name: str) -> bool:
    return bool(client.exists(f"sys:lock:{name}"))


@pytest.mark.parametrize("kind", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH"])
def test_signal_goes_to_the_command_which_keeps_the_lock(
    server: Any, direct: Any, name: str, kind: str
) -> None:
    command = ["sh", "-c", TRAP.format(kind)]
    with Program("run", name, "--", *command, url=server.url) as program:
        program.until("inside")
        program.send(getattr(signal, f"SIG{kind}"))
        program.until(f"got {kind}")
        was_held = is_held(direct, name)
        program.write("end\n")

        assert program.code() == 5
    assert was_held
    assert not is_held(direct, name)


@pytest.mark.parametrize(("kind", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", -2)])
def test_command_that_a_signal_ends_gives_its_code(
    server: Any, direct: Any, name: str, kind: str, code: int
) -> None:
    command = ["sh", "-c", "echo inside; exec sleep 60"]
    with Program("run", name, "--min-hold", "60", "--", *command, url=server.url) as program:
        program.until("inside")
        program.send(getattr(signal, kind))

        assert program.code() == code
        assert program.errors() == ""
    assert not is_held(direct, name)


def test_signal_reaches_the_children_of_the_command(server: Any, name: str) -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait; exit 0"]
    with Program("run", name, "--", *command, url=server.url) as program:
        grandchild = int(program.until("\n"))
        program.send(signal.SIGTERM)

        assert program.code() == 143
    until(lambda: not is_running(grandchild))


@pytest.mark.parametrize(("kind", "code"), [("SIGTERM", 143), ("SIGINT", -2), ("SIGUSR1", 138)])
def test_signal_while_waiting_leaves_the_queue_and_starts_nothing(
    server: Any, direct: Any, name: str, kind: str, code: int
) -> None:
    command = ["run", name, "--on-busy", "wait", "--", "echo", "inside"]
    with RedisLock(name, client=direct), Program(*command, url=server.url) as program:
        until(lambda: lock_status(direct, name).waiting)
        program.send(getattr(signal, kind))

        assert program.code() == code
        assert program.process.stdout is not None
        assert (program.process.stdout.read(), program.errors()) == (b"", "")
        assert lock_status(direct, name).waiting == 0


def test_signal_that_was_ignored_at_the_start_remains_ignored(server: Any, name: str) -> None:
    # As nohup does; the shell's child inherits what is ignored.
    command = [*PROGRAM, "run", f"{name}:inner", "--"]
    command += ["sh", "-c", "kill -HUP $PPID $$; echo alive"]

    done = ran("run", name, "--", "sh", "-c", 'trap "" HUP; "$@"', "sh", *command, url=server.url)

    assert (done.code, done.out) == (0, "alive\n")


def test_status_is_known_though_ended_children_were_ignored(server: Any, name: str) -> None:
    inner = [*PROGRAM, "run", f"{name}:inner", "--", "sh", "-c", "exit 6"]
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    code += "os.execv(sys.argv[1], sys.argv[1:])"

    done = ran("run", name, "--", sys.executable, "-Sc", code, *inner, url=server.url)

    assert (done.code, done.err) == (6, "")


def test_background_process_that_is_left_does_not_keep_the_lock(
    server: Any, direct: Any, name: str
) -> None:
    command = ["sh", "-c", "sleep 60 >&- 2>&- & echo $!"]

    done = ran("run", name, "--", *command, url=server.url)

    left = int(done.out)
    assert done.code == 0
    assert is_running(left)
    assert not is_held(direct, name)
    os.kill(left, signal.SIGKILL)


def test_stopped_command_keeps_the_lock_without_a_terminal(
    server: Any, direct: Any, name: str
) -> None:
    with Program(
        "run", name, "--expire", "0.5", "--", "sh", "-c", "echo $$; read line", url=server.url
    ) as program:
        pid = int(program.until("\n"))
        program.send(signal.SIGTSTP)
        until(lambda: state_of(pid) == "T")
        first = direct.pttl(f"sys:lock:{name}")
        until(lambda: direct.pttl(f"sys:lock:{name}") != first)  # it is renewed
        program.send(signal.SIGCONT)
        program.write("\n")

        assert program.code() == 0
