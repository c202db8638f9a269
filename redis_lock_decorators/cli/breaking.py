"""``redis-lock break``: release a lock that another process holds."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.completion import lock_names
from redis_lock_decorators.cli.output import note, print_json
from redis_lock_decorators.cli.texts import duration, shortened, shown
from redis_lock_decorators.inspection import LockStatus, lock_status
from redis_lock_decorators.redislock import RedisLock


@click.command("break")
@click.argument("name", shell_complete=lock_names)
@click.option("--identifier", help="Release only if this is the holder, as ls and show print it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object: the state, and whether the lock was released.",
)
@click.pass_obj
def break_lock(
    connection: Any, name: str, identifier: str | None, yes: bool, as_json: bool
) -> None:
    """Release a lock that another process holds, such as one that hangs.

    The first waiter gets the lock. The old holder is notified of its loss at its next renewal or
    when its block ends: until then both are inside. So make sure first that it does no harm.

    The lock is released only if its holder is still the one that was shown. The exit code is 1 if
    nothing was released.
    """
    client, prefix = connection.client, connection.prefix
    found = lock_status(client, name, prefix=prefix)
    is_released = (
        _is_there(found, identifier)
        and (yes or _is_confirmed(found))
        and _released(RedisLock(name, client=client, prefix=prefix), found)
    )
    if as_json:
        print_json({**asdict(found), "released": is_released})
    elif is_released:
        click.echo(_outcome(lock_status(client, name, prefix=prefix)))
    sys.exit(exit_codes.OK if is_released else exit_codes.NO)


def _is_there(found: LockStatus, identifier: str | None) -> bool:
    """Whether there is a lock to release, with the identifier that the user gave, if any."""
    if found.identifier is None:
        note(f"lock {found.lock_name} is free")
        return False
    if identifier is not None and not _begins(found.identifier, identifier):
        note(
            f"lock {found.lock_name} is held by {shortened(found.identifier)}, nothing was released"
        )
        return False
    return True


def _begins(identifier: str, given: str) -> bool:
    """Whether it is the identifier that the user gave, or begins with what a table shows of it."""
    beginning = given.removesuffix("…")
    return identifier == given or (len(beginning) >= 8 and identifier.startswith(beginning))


def _is_confirmed(found: LockStatus) -> bool:
    name, left = shown(found.lock_name), duration(found.remaining)
    if found.is_min_hold:
        question = f"Lock {name} has no holder; min_hold keeps it for {left}. Free it?"
    else:
        holder = shown(shortened(found.identifier or ""))
        question = (
            f"Lock {name} is held by {holder}, for {left} unless it is renewed; {found.waiting} "
            "wait. Its holder may still be working. Release it?"
        )
    return click.confirm(question, err=True)


def _released(lock: RedisLock, found: LockStatus) -> bool:
    is_released = lock.force_release(found.identifier)
    if not is_released:
        note(f"lock {found.lock_name} has another holder by now, nothing was released")
    return is_released


def _outcome(now: LockStatus) -> str:
    if now.identifier is None:
        return f"released {shown(now.lock_name)}: it is free"
    return f"released {shown(now.lock_name)}: {shown(shortened(now.identifier))} has it now"
