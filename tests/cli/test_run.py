"""``redis-lock run``: the command, its environment and status, and a busy lock."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from support.cli import PROGRAM, Program, environment, ran
from support.waiting import until

from redis_lock_decorators import RedisLock
from redis_lock_decorators.inspection import lock_status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="run needs fork")

SHOW = 'for name in NAME KEY IDENTIFIER FENCE; do eval echo "\\${REDIS_LOCK_$name-none}"; done'
WAIT = "echo inside; read line; exit 0"


def is_held(client: Any, name: str) -> bool:
    return bool(client.exists(f"sys:lock:{name}"))


def test_command_runs_while_the_lock_is_held(server: Any, direct: Any, name: str) -> None:
    with Program("run", name, "--", "sh", "-c", WAIT, url=server.url) as program:
        program.until("inside")
        was_held = is_held(direct, name)
        program.write("\n")

        assert program.code() == 0
        assert program.errors() == ""
    assert was_held
    assert not is_held(direct, name)


def test_command_finds_the_lock_in_its_environment(server: Any, direct: Any, name: str) -> None:
    show = f"{SHOW}; read line"
    with Program("run", name, "--fencing", "--", "sh", "-c", show, url=server.url) as program:
        found = [program.until("\n") for _ in range(4)]
        holder = direct.get(f"sys:lock:{name}").decode()

    assert found[:3] == [name, f"sys:lock:{name}", holder]
    assert int(found[3]) > 0


def test_fence_of_an_outer_lock_is_not_inherited(server: Any, name: str) -> None:
    inner = [sys.executable, "-m", "redis_lock_decorators", "run", f"{name}:inner"]
    outer = ["run", name, "--fencing", "--", *inner, "--", "sh", "-c", SHOW]

    assert ran(*outer, url=server.url).out.split()[3:] == ["none"]


def test_several_names_are_held_together(server: Any, direct: Any, name: str) -> None:
    command = ["run", f"{name}:a", f"{name}:b", "--prefix", "own:", "--", "sh", "-c"]
    with Program(*command, WAIT, url=server.url) as program:
        program.until("inside")

        assert sorted(direct.keys(f"own:{name}:?")) == [
            f"own:{name}:{end}".encode() for end in "ab"
        ]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 42"], 42),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["sh", "-c", "kill -15 $$"], 128 + 15),
        (["sh", "-c", "kill -2 $$"], -2),  # a shell shows 130, and leaves its loop
        (["/etc/passwd"], 126),
        (["/etc"], 126),
        (["no-such-command"], 127),
        (["/no/such/command"], 127),
    ],
    ids=lambda value: "-".join(value[-1:]) if isinstance(value, list) else str(value),
)
def test_exit_code_is_that_of_the_command(
    server: Any, direct: Any, name: str, command: list[str], code: int
) -> None:
    assert ran("run", name, "--", *command, url=server.url).code == code
    assert not is_held(direct, name)


def test_file_that_cannot_be_executed_releases_the_lock(
    server: Any, direct: Any, name: str, tmp_path: Any
) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x00 no program")
    script.chmod(0o755)

    done = ran("run", name, "--min-hold", "60", "--", str(script), url=server.url)

    assert done.code == 126
    assert done.err == f"redis-lock: {script}: Exec format error\n"
    assert not is_held(direct, name)


@pytest.mark.parametrize(
    "arguments",
    [
        ["x"],
        ["x", "--"],
        ["--", "true"],
        ["x", "true"],
        ["x", "--expire", "0", "--", "true"],
        ["x", "--expire", "nan", "--", "true"],
        ["x", "--kill-after", "-1", "--", "true"],
        ["", "--", "true"],
    ],
)
def test_wrong_use_is_refused(server: Any, arguments: list[str]) -> None:
    done = ran("run", *arguments, url=server.url)

    assert done.code == 2
    assert "Error: " in done.err
    assert "Traceback" not in done.err


def test_busy_lock_fails_or_is_skipped(server: Any, direct: Any, name: str) -> None:
    with RedisLock(name, client=direct):
        failed = ran("run", name, "--", "echo", "inside", url=server.url)
        waited = ran("run", name, "--acquire-time", "0.1", "--", "echo", "in", url=server.url)
        skipped = ran("run", name, "--on-busy", "skip", "--", "echo", "inside", url=server.url)

    assert (failed.code, failed.out) == (75, "")
    assert failed.err.startswith(f"redis-lock: lock '{name}' is busy: held by ")
    assert (waited.code, waited.out) == (75, "")
    assert (skipped.code, skipped.out, skipped.err) == (0, "", "")


def test_busy_lock_without_an_expiry_is_said_to_be_so(server: Any, direct: Any, name: str) -> None:
    direct.set(f"sys:lock:{name}", "someone")

    done = ran("run", name, "--", "true", url=server.url)

    assert done.code == 75
    assert "without an expiry: if its holder has crashed, delete the key" in done.err
    direct.delete(f"sys:lock:{name}")


def test_name_that_looks_like_a_password_is_shown(server: Any, direct: Any, name: str) -> None:
    name = f"reset_password:{name}"

    with RedisLock(name, client=direct):
        done = ran("run", name, "--", "true", url=server.url)

    assert done.err.startswith(f"redis-lock: lock '{name}' is busy: held by ")


def test_waiting_command_runs_after_the_release(server: Any, direct: Any, name: str) -> None:
    lease = RedisLock(name, client=direct).acquire(None)
    command = ["run", name, "--on-busy", "wait", "--", "echo", "inside"]
    with Program(*command, url=server.url) as program:
        until(lambda: lock_status(direct, name).waiting)
        lease.release()

        program.until("inside")
        assert program.code() == 0


@pytest.mark.parametrize(("command", "is_kept"), [("true", True), ("false", False)])
def test_min_hold_keeps_the_lock_after_a_success_only(
    server: Any, direct: Any, name: str, command: str, is_kept: bool
) -> None:
    ran("run", name, "--min-hold", "60", "--", command, url=server.url)

    assert is_held(direct, name) == is_kept


def test_command_gets_standard_input_and_signals_at_their_defaults(server: Any, name: str) -> None:
    # With SIGPIPE ignored, yes would report an error.
    done = ran("run", name, "--", "sh", "-c", "cat; yes | head -1", url=server.url, given="typed ")

    assert (done.out, done.err) == ("typed y\n", "")


def test_standard_files_may_be_closed(server: Any, direct: Any, name: str, tmp_path: Any) -> None:
    shown = tmp_path / "shown"
    closes = f'exec "$@" >&- 2>&- <&- -- sh -c "echo inside > {shown}; sleep 0.3; exit 4"'
    done = subprocess.run(
        ["sh", "-c", closes, "sh", *PROGRAM, "run", name],  # noqa: S607
        env=environment(server.url),
        check=False,
    )

    assert done.returncode == 4
    assert shown.read_text() == "inside\n"


def test_help_has_every_exit_code_and_variable() -> None:
    text = ran("run", "--help", url=None).out

    for word in ("69", "70", "75", "126", "127", "128+n", "IDENTIFIER", "FENCE", "SIGKILL"):
        assert word in text


def test_system_without_fork_is_refused(server: Any, name: str) -> None:
    code = (
        "import os, signal, sys, click, redis_lock_decorators.locks\n"
        "del os.fork, os.WUNTRACED, os.WNOHANG, os.killpg, os.getpgrp, os.tcsetpgrp\n"
        "del signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD, signal.pthread_sigmask\n"
        "from redis_lock_decorators.cli import main\n"
        "main(prog_name='redis-lock')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", name, "--", "echo", "inside"],
        env=environment(server.url),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "run needs a POSIX system" in done.stderr


def test_holder_is_named_without_the_arguments(server: Any, direct: Any, name: str) -> None:
    command = ["/bin/sh", "-c", f": secret; {WAIT}"]
    with Program("run", name, "--", *command, url=server.url) as program:
        program.until("inside")
        owner = lock_status(direct, name).owner
        busy = ran("run", name, "--", "true", url=server.url)
        program.write("\n")
        assert program.code() == 0

    assert owner is not None
    assert set(owner) == {"host", "pid", "command", "since"}
    assert owner["command"] == "sh"
    assert f":{owner['pid']}, command sh, for " in busy.err
    assert busy.code == 75
