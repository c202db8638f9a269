"""``redis-lock run`` in a pseudo-terminal: reading, Ctrl-C, Ctrl-Z."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, PROMPT, Program, state_of
from support.local_servers import is_running
from support.waiting import until

from redis_lock_decorators import RedisLock
from redis_lock_decorators.inspection import lock_status

pytest.importorskip("termios")

#: Typed at a terminal.
CTRL_C, CTRL_Z = "\x03", "\x1a"
#: A shell with job control.
SHELL = ["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"]


def shell(url: str) -> Program:
    program = Program(command=SHELL, url=url, width=80, stderr_too=True)
    program.until(PROMPT)
    return program


def run(name: str, *command: str, options: str = "") -> str:
    return f"{' '.join(PROGRAM)} run {name} {options} -- {' '.join(command)}"


def test_command_reads_the_terminal(server: Any, name: str) -> None:
    command = ["sh", "-c", 'echo inside; read line; echo "read $line"']
    with Program("run", name, "--", *command, url=server.url, width=80, stderr_too=True) as program:
        program.until("inside")
        program.write("typed\n")

        program.until("read typed")
        assert program.code() == 0


def test_command_is_in_the_foreground_from_its_start(server: Any, name: str) -> None:
    code = "import os; print(os.tcgetpgrp(0) == os.getpgrp() == os.getpid())"
    command = [sys.executable, "-Sc", code]
    with Program("run", name, "--", *command, url=server.url, width=80, stderr_too=True) as program:
        program.until("True")
        assert program.code() == 0


def test_interrupt_key_reaches_the_command_once(server: Any, direct: Any, name: str) -> None:
    wait = "n=0; until read line || [ $n -gt 300 ]; do n=$((n+1)); sleep .1; done"
    code = f'trap "echo got one" INT; echo inside; {wait}; echo end; exit 4'
    command = ["sh", "-c", code]
    with Program("run", name, "--", *command, url=server.url, width=80, stderr_too=True) as program:
        program.until("inside")
        program.write(CTRL_C)
        program.until("got one")
        was_held = direct.exists(f"sys:lock:{name}")
        program.write("\n")

        assert "got one" not in program.until("end")
        assert program.code() == 4
    assert was_held


def test_interrupt_key_ends_a_loop_of_the_shell(server: Any, direct: Any, name: str) -> None:
    with shell(server.url) as program:
        once = run(name, "sh -c 'echo inside; exec sleep 60'")
        program.write(f"for i in 1 2; do {once}; done; echo after $?\n")
        program.until("inside")
        program.write(CTRL_C)

        assert "inside" not in program.until(PROMPT)
    assert not direct.exists(f"sys:lock:{name}")


def test_interrupt_key_ends_a_script(server: Any, name: str, tmp_path: Any) -> None:
    script = tmp_path / "script"
    script.write_text(
        f"{run(name, 'sh', '-c', repr('echo inside; exec sleep 60'))}\necho 'not'' this'\n"
    )
    with shell(server.url) as program:
        program.write(f"bash {script}; echo code=$?.\n")
        program.until("inside")
        program.write(CTRL_C)

        assert "not this" not in program.until(PROMPT)


def test_command_in_a_pipeline_gets_the_terminal_when_it_reads_it(server: Any, name: str) -> None:
    with shell(server.url) as program:
        reads = "sh -c 'echo inside >/dev/tty; read line </dev/tty; echo read $line'"
        program.write(f"true | {run(name, reads)} | cat; echo code=$?.\n")
        program.until("inside")
        program.write("typed\n")

        program.until("read typed")
        program.until("code=0.")


def test_terminal_returns_to_a_script_after_the_command(
    server: Any, name: str, tmp_path: Any
) -> None:
    script = tmp_path / "script"
    script.write_text(f"{run(name, 'true')}\necho asks; read line; echo script read $line\n")
    with shell(server.url) as program:
        program.write(f"sh {script}\n")
        program.until("asks")
        program.write("typed\n")

        program.until("script read typed")


def test_stopped_job_continues_in_the_foreground(server: Any, direct: Any, name: str) -> None:
    with shell(server.url) as program:
        reads = "sh -c 'echo inside; read line; echo read $line'"
        program.write(f"{run(name, reads, options='--expire 60')}\n")
        program.until("inside")
        program.write(CTRL_Z)
        program.until("Stopped")
        program.until(PROMPT)
        assert direct.exists(f"sys:lock:{name}")
        program.write("fg\n")
        program.until("run")
        program.write("typed\n")

        program.until("read typed")
        program.until(PROMPT)
        assert not direct.exists(f"sys:lock:{name}")


def test_job_that_is_stopped_while_it_waits_waits_again(
    server: Any, direct: Any, name: str
) -> None:
    with RedisLock(name, client=direct) as lease, shell(server.url) as program:
        program.write(run(name, "echo inside", options="--on-busy wait") + "\n")
        until(lambda: lock_status(direct, name).waiting)
        program.write(CTRL_Z)
        program.until("Stopped")
        program.until(PROMPT)
        program.write("fg\n")
        program.until("run")
        lease.release()

        program.until("inside")


def test_job_in_the_background_stops_when_it_reads_the_terminal(server: Any, name: str) -> None:
    with shell(server.url) as program:
        program.write(
            run(name, "sh -c 'read line; echo read $line'", options="--expire 60") + " &\n"
        )
        program.until(PROMPT)
        program.write("wait %1; fg\n")
        program.until("run")
        program.write("typed\n")

        program.until("read typed")


def test_job_that_lost_its_lock_while_stopped_does_not_continue(
    server: Any, direct: Any, name: str
) -> None:
    with shell(server.url) as program:
        loops = "sh -c 'echo $$.; while read line; do echo read $line; done'"
        program.write(f"{run(name, loops, options='--expire 0.5')}; echo code=$?.\n")
        pid = int(program.until(".").split()[-1])
        program.write(CTRL_Z)
        program.until(PROMPT)
        assert state_of(pid) == "T"
        until(lambda: not direct.exists(f"sys:lock:{name}"))
        program.write("fg; echo code=$?.\n")

        program.until("ended before the work did")
        assert "read" not in program.until("code=70.")


def test_hangup_of_the_terminal_ends_the_command(server: Any, direct: Any, name: str) -> None:
    command = ["sh", "-c", "echo $$.; exec sleep 60"]
    program = Program("run", name, "--", *command, url=server.url, width=80, stderr_too=True)
    with program:
        program.until(".")
        program.hang_up()

        assert program.code() in (128 + signal.SIGHUP, -signal.SIGHUP)
        until(lambda: not direct.exists(f"sys:lock:{name}"))


def test_shell_continues_after_run_was_killed(server: Any, name: str) -> None:
    with shell(server.url) as program:
        program.write(run(name, "sh -c 'echo $$ $PPID.; exec sleep 60'") + "\n")
        command, parent = map(int, program.until(".").split()[-2:])
        os.kill(parent, signal.SIGKILL)

        program.until(PROMPT)
        until(lambda: not is_running(command))
        program.write("echo still $((40 + 2))\n")
        program.until("still 42")
