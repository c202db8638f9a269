"""The program and the options that all its verbs have."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click
import redis

from redis_lock_decorators import __version__
from redis_lock_decorators._rules.keys import DEFAULT_PREFIX
from redis_lock_decorators._rules.options import checked_prefix
from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.bench import bench
from redis_lock_decorators.cli.breaking import break_lock
from redis_lock_decorators.cli.connecting import CLUSTER_ERROR, FORMS, connected
from redis_lock_decorators.cli.demo import demo
from redis_lock_decorators.cli.doctor import doctor
from redis_lock_decorators.cli.list_locks import ls
from redis_lock_decorators.cli.output import fail
from redis_lock_decorators.cli.run import run
from redis_lock_decorators.cli.show_lock import show
from redis_lock_decorators.cli.streams import OutputError, checked_streams
from redis_lock_decorators.errors import ConfigurationError, LockError, LockNameError

EPILOG = """\b
Shell completion, of lock names too; put the line into the start file of the shell:
  bash  eval "$(_REDIS_LOCK_COMPLETE=bash_source redis-lock)"
  zsh   eval "$(_REDIS_LOCK_COMPLETE=zsh_source redis-lock)"
  fish  _REDIS_LOCK_COMPLETE=fish_source redis-lock | source

\b
Exit codes:
  0   done
  1   show: the lock is free; break: nothing was released; doctor: something breaks locks;
      demo: the counter is wrong with the lock
  2   wrong use
  69  the server cannot be reached or refuses the request; an unexpected error
  70  run: the lock was lost
  74  the output cannot be written
  75  run: the lock is busy
  130 interrupted by Ctrl-C; 143 ended by SIGTERM; 141 the reader of the output has ended
  126, 127, 128+n, others: see redis-lock run --help
"""


@dataclass
class Connection:
    """The connection of all verbs, which is made at its first use.

    Attributes:
        connect: returns the client if no URL is given; None without a program around this one.
    """

    url: str | None
    prefix: str
    connect: Callable[[], Any] | None = None

    @cached_property
    def client(self) -> Any:
        """The client.

        Raises:
            click.UsageError: the URL has no known form.
            redis.RedisError: the server does not answer.
        """
        if self.url is None and self.connect is not None:
            return self.connect()
        return connected(self.url)


class Program(click.Group):
    """The group of verbs; errors of the server end with a message and a code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program; an output that cannot be written gives a separate exit code."""
        with checked_streams():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, OutputError):
            raise
        except KeyboardInterrupt:
            sys.exit(exit_codes.INTERRUPTED)
        except Exception as error:
            fail(*explained(error))


def explained(error: Exception) -> tuple[str, int]:
    """The message and the exit code for an error.

    The exit code 1 is a result, such as "the lock is free".
    """
    if isinstance(error, LockNameError):
        return str(error), exit_codes.USAGE
    if isinstance(error, ConfigurationError):
        return safe_text(error), exit_codes.USAGE
    if isinstance(error, UnicodeEncodeError):
        return "an argument is not valid UTF-8", exit_codes.USAGE
    if isinstance(error, CLUSTER_ERROR):
        return f"the cluster: {safe_text(error)}", exit_codes.UNAVAILABLE
    if isinstance(error, LockError):
        return str(error), exit_codes.UNAVAILABLE
    if isinstance(error, (redis.RedisError, OSError)):
        return f"the server: {safe_text(error) or type(error).__name__}", exit_codes.UNAVAILABLE
    return _unexpected(error), exit_codes.UNAVAILABLE


def _unexpected(error: Exception) -> str:
    """The class and the line of an error, as of a credential provider; not its text."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"unexpected {type(error).__name__} in {place.filename}, line {place.lineno} (its text is "
        "not shown: it may hold a password)"
    )


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="redis-lock")
@click.option(
    "--url",
    metavar="URL",
    help=f"The server: {FORMS}. Default: REDIS_LOCK_CONNECTION (package.module:function that "
    "returns a client), else REDIS_URL, else localhost. A URL on the command line can be read "
    "by other users of the machine: pass a password by REDIS_URL.",
)
@click.option(
    "--prefix", default=DEFAULT_PREFIX, show_default=True, help="What all keys begin with."
)
@click.pass_context
def main(context: click.Context, url: str | None, prefix: str) -> None:
    """See, test, hold and break the locks of redis_lock_decorators."""
    context.obj = Connection(url, checked_prefix(prefix), context.obj)


main.add_command(ls)
main.add_command(show)
main.add_command(run)
main.add_command(break_lock)
main.add_command(doctor)
main.add_command(bench)
main.add_command(demo)
