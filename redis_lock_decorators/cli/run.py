"""``redis-lock run``: hold the lock while a command runs."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import click

from redis_lock_decorators._rules.owner_info import held_for
from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.child import code_of, why_not_executable
from redis_lock_decorators.cli.durations import seconds
from redis_lock_decorators.cli.holding import NotExecuted, run_held
from redis_lock_decorators.cli.output import fail, note
from redis_lock_decorators.cli.signals import Interrupted, end_by_interrupt
from redis_lock_decorators.cli.texts import duration
from redis_lock_decorators.errors import (
    ConfigurationError,
    LockNameError,
    LockTimeoutError,
    described,
    shown,
)
from redis_lock_decorators.redislock import RedisLock

EPILOG = """\b
Examples:
  redis-lock run backup -- pg_dump -f /backup/today shop
  redis-lock run digest --on-busy skip --min-hold 3000 -- send-digest
  redis-lock run deploy --on-busy wait --acquire-time 600 -- ./deploy.sh

\b
The command gets in its environment:
  REDIS_LOCK_NAME, REDIS_LOCK_KEY   the name; the Redis key (several are joined by ", ")
  REDIS_LOCK_IDENTIFIER             the random value in the key
  REDIS_LOCK_FENCE                  with --fencing: a number that grows with each acquisition

\b
Signals: the command runs in a process group of its own, which gets SIGHUP, SIGINT, SIGQUIT,
SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and SIGWINCH that are sent to redis-lock. The lock
is released when the command has ended, not before; background processes that it leaves are
not waited for. A command that uses the terminal is put into the foreground. Ctrl-Z stops
both: a job that is stopped for longer than --expire loses its lock, and gets SIGTERM when it
is continued.

\b
If the lock is lost, the group gets SIGTERM, and SIGKILL --kill-after seconds later; the exit
code is 70 when all have ended. The same is done if redis-lock itself is killed, or is stopped
(SIGSTOP) until its lease ends. A lock is lost if the server does not answer for --expire
seconds, or if another client releases it.

\b
Exit codes:
  n      that of the command
  0      with --on-busy skip: the lock is busy
  2      wrong use
  69     the server cannot be reached or refuses the request
  70     the lock was lost while the command ran
  75     the lock is busy
  126    the command cannot be executed
  127    the command was not found
  128+n  the command, or redis-lock while it waited, was ended by signal n; for SIGINT
         redis-lock ends by this signal too, so that a shell leaves its loop
"""


class RunCommand(click.Command):
    """A verb whose last arguments, after ``--``, are a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before ``--``."""
        own, command = args, []
        if "--" in args:
            cut = args.index("--")
            own, command = args[:cut], args[cut + 1 :]
        rest = super().parse_args(ctx, own)
        if not command:
            raise click.UsageError(
                "no command: write it after --, as in redis-lock run name -- command", ctx
            )
        ctx.params["command"] = command
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what the line of usage shows."""
        return ["NAME [NAME]... [OPTIONS] -- COMMAND [ARGUMENT]..."]


@click.command(cls=RunCommand, epilog=EPILOG)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--on-busy",
    type=click.Choice(["fail", "skip", "wait"]),
    default="fail",
    show_default=True,
    help="If another client holds the lock: exit with 75; exit with 0, without a message; or wait.",
)
@click.option(
    "--acquire-time",
    type=seconds,
    metavar="SECONDS",
    help="The longest wait before the lock counts as busy. Default: 0, with --on-busy wait without "
    "limit.",
)
@click.option(
    "--expire",
    type=seconds,
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="The lock's time to live without renewal: after a crash it blocks others for this long. "
    "It is renewed while the command runs.",
)
@click.option(
    "--min-hold",
    type=seconds,
    metavar="SECONDS",
    help="Keep others out for this long after the acquisition, if the command succeeds: at most "
    "one success in this time.",
)
@click.option("--fencing", is_flag=True, help="Number the acquisitions: REDIS_LOCK_FENCE.")
@click.option(
    "--kill-after",
    type=seconds,
    metavar="SECONDS",
    default=5,
    show_default=True,
    help="From SIGTERM to SIGKILL if the lock is lost.",
)
@click.option("--prefix", help="What the key begins with; default: that before the verb.")
@click.pass_obj
def run(
    connection: Any,
    /,
    names: Sequence[str],
    command: Sequence[str],
    on_busy: str,
    acquire_time: float | None,
    kill_after: float,
    prefix: str | None,
    **options: Any,
) -> None:
    """Hold a lock while a command runs.

    Several NAMEs are acquired all or none. The exit code is that of the command.
    """
    if not hasattr(os, "fork"):
        raise click.UsageError("run needs a POSIX system, such as Linux or macOS")
    if error := why_not_executable(command[0]):
        _fail_execution(command[0], error)
    if acquire_time is None and on_busy != "wait":
        acquire_time = 0
    options.update(prefix=prefix or connection.prefix, acquire_time=acquire_time)
    try:
        options["owner_info"] = lambda: _about(command[0])
        make_lock = partial(_lock, connection, list(names), options)
        code = run_held(make_lock, command, kill_after)
    except NotExecuted as failure:
        _fail_execution(command[0], failure.error)
    except LockTimeoutError as error:
        code = exit_codes.OK if on_busy == "skip" else _report_busy(error)
    except Interrupted as interruption:
        code = exit_codes.SIGNALLED + interruption.number
        if interruption.number == signal.SIGINT:
            end_by_interrupt(interruption.whole_group)
    sys.exit(code)


def _lock(
    connection: Any, names: list[str], options: dict[str, Any], on_lost: Callable[..., None]
) -> RedisLock:
    try:
        return RedisLock(names, client=connection.client, on_lost=on_lost, **options)
    except (ConfigurationError, LockNameError) as error:
        raise click.UsageError(str(error)) from error


def _about(program: str) -> dict[str, str | None]:
    """Return what other clients see of the holder: the program, without its arguments."""
    return {"command": os.path.basename(program), "thread": None, "function": None}


def _report_busy(error: LockTimeoutError) -> int:
    text = f"lock {shown(error.lock_name or '')} is busy"
    if error.holder:
        text += f": held by {error.holder}"
    if error.owner is not None:
        text += f" ({described(error.owner, held_for(error.owner, time.time()))})"
    if error.free_in == math.inf:
        text += " without an expiry: if its holder has crashed, delete the key (redis-lock break)"
    elif error.free_in is not None:
        text += f" for at most {duration(error.free_in)} unless renewed"
    note(text)
    return exit_codes.BUSY


def _fail_execution(command: str, error: OSError) -> NoReturn:
    fail(f"{command}: {error.strerror}", code_of(error))
