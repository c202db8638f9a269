"""``redis-lock demo``: a counter that is wrong without a lock and right with it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.demo_outcomes import Outcome, table
from redis_lock_decorators.cli.demo_scenes import WORKERS, Scenes
from redis_lock_decorators.cli.demo_workers import EXPIRE, Place, Section, change, change_locked
from redis_lock_decorators.cli.output import fail, print_json
from redis_lock_decorators.cli.signals import ended_by_signals
from redis_lock_decorators.testing import LocalServer, ServerNotFound


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each scene.")
@click.pass_obj
def demo(connection: Any, as_json: bool) -> None:
    """Show what a lock is for, in some ten seconds.

    Several processes log users in and out; each login reads the count, computes, and writes it
    back. Three scenes: without a lock, with @redis_lock, and with a process that is killed in its
    critical section, after which the others wait until its lease ends.

    Without --url and the environment variables a local server is started, which the extra
    "embedded" brings. The keys of the demo are new ones under the prefix. The exit code is 1 if a
    scene fails.
    """
    outcomes: dict[str, Outcome] = {}
    with ended_by_signals(), _place(connection) as place:
        scenes = Scenes(place, place.connect())
        with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            is_in_time = _play(scenes, outcomes)
    is_exact = all(outcomes[scene].is_exact() for scene in ("with @redis_lock", "with a kill"))
    if as_json:
        print_json(*({"scene": name, **vars(one)} for name, one in outcomes.items()))
    else:
        print("", *table(outcomes), "", sep="\n")
        print("exact under the lock, also after the kill" if is_exact else "NOT EXACT")
        print(f"the others entered {'when' if is_in_time else 'NOT when'} the lease ended")
    sys.exit(exit_codes.OK if is_exact and is_in_time else exit_codes.NO)


def _play(scenes: Scenes, outcomes: dict[str, Outcome]) -> bool:
    """Play all scenes; return whether the others entered when the lease of the killed one ended."""
    sections: dict[str, Section] = {"without lock": change, "with @redis_lock": change_locked}
    try:
        for scene, section in sections.items():
            print(f"{WORKERS} processes count users, {scene}")
            outcomes[scene] = scenes.side_by_side(section)
        print(f"the same with @redis_lock(expire={EXPIRE:g}), and one process is killed")
        outcomes["with a kill"], is_in_time = scenes.kill_inside()
    finally:
        scenes.clear()
    return is_in_time


@contextlib.contextmanager
def _place(connection: Any) -> Iterator[Place]:
    prefix = f"{connection.prefix}redis-lock:demo:{{{os.urandom(4).hex()}}}:"
    named = os.environ.get("REDIS_LOCK_CONNECTION") or os.environ.get("REDIS_URL")
    if connection.url or named:
        yield Place(connection.url, prefix)
        return
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(LocalServer())
        except ServerNotFound as error:
            fail(f"{safe_text(error)}, or give --url", exit_codes.UNAVAILABLE)
        yield Place(server.url, prefix)
