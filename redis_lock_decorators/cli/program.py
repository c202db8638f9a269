"""The program and the options that all its verbs have."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click
import redis

from redis_lock_decorators import __version__
from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.bench import bench
from redis_lock_decorators.cli.breaking import break_lock
from redis_lock_decorators.cli.connecting import FORMS, connected
from redis_lock_decorators.cli.demo import demo
from redis_lock_decorators.cli.doctor import doctor
from redis_lock_decorators.cli.list_locks import ls
from redis_lock_decorators.cli.output import fail
from redis_lock_decorators.cli.run import run
from redis_lock_decorators.cli.show_lock import show
from redis_lock_decorators.errors import ConfigurationError, LockError

EPILOG = """\b
Shell completion, of lock names too; put the line into the start file of the shell:
  bash  eval "$(_REDIS_LOCK_COMPLETE=bash_source redis-lock)"
  zsh   eval "$(_REDIS_LOCK_COMPLETE=zsh_source redis-lock)"
  fish  _REDIS_LOCK_COMPLETE=fish_source redis-lock | source

\b
Exit codes:
  0   done
  1   show: the lock is free; break: nothing was released; doctor: something breaks locks
  2   wrong use
  69  the server cannot be reached or refuses the request
  70  run: the lock was lost
  75  run: the lock is busy
  130 interrupted by Ctrl-C; 143 ended by SIGTERM
  126, 127, 128+n, others: see redis-lock run --help
"""

#: It is no RedisError, and redis-py 3.5 does not have it.
CLUSTER_ERROR: Any = getattr(redis.exceptions, "RedisClusterException", ())


@dataclass
class Connection:
    """The connection of all verbs, which is made at its first use."""

    url: str | None
    prefix: str

    @cached_property
    def client(self) -> Any:
        """The client.

        Raises:
            click.UsageError: the URL has no known form.
            redis.RedisError: the server does not answer.
        """
        return connected(self.url)


class Program(click.Group):
    """The group of verbs; errors of the server end with a message and a code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(exit_codes.INTERRUPTED)
        except ConfigurationError as error:
            fail(str(error), exit_codes.USAGE)
        except CLUSTER_ERROR as error:
            fail(f"the cluster: {error}", exit_codes.UNAVAILABLE)
        except redis.RedisError as error:
            if isinstance(error, LockError):
                fail(str(error), exit_codes.UNAVAILABLE)
            fail(f"the server: {error or type(error).__name__}", exit_codes.UNAVAILABLE)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            fail(f"the server: {error}", exit_codes.UNAVAILABLE)


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="redis-lock")
@click.option(
    "--url",
    metavar="URL",
    help=f"The server: {FORMS}. Default: REDIS_LOCK_CONNECTION (package.module:function that "
    "returns a client), else REDIS_URL, else localhost. A URL on the command line can be read "
    "by other users of the machine: pass a password by REDIS_URL.",
)
@click.option("--prefix", default="sys:lock:", show_default=True, help="What all keys begin with.")
@click.pass_context
def main(context: click.Context, url: str | None, prefix: str) -> None:
    """See, test, hold and break the locks of redis_lock_decorators."""
    context.obj = Connection(url, prefix)


main.add_command(ls)
main.add_command(show)
main.add_command(run)
main.add_command(break_lock)
main.add_command(doctor)
main.add_command(bench)
main.add_command(demo)
