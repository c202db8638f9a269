"""Complete lock names in the shell, from the server."""

from __future__ import annotations

import itertools
import time

import click

from redis_lock_decorators._rules.keys import DEFAULT_PREFIX
from redis_lock_decorators._rules.permissions import key_pattern
from redis_lock_decorators.cli.connecting import connected
from redis_lock_decorators.inspection import find_locks

#: A shell waits for the names: for each reply at most half a second, for all of them a second.
REPLY_SECONDS = 0.5
ALL_SECONDS = 1.0
MOST_NAMES = 100


def lock_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so; none if the server does not answer soon."""
    options = context.find_root().params
    try:
        client = connected(options.get("url"), timeout=REPLY_SECONDS)
        prefix = options.get("prefix") or DEFAULT_PREFIX
        pages = find_locks(client, key_pattern(incomplete), prefix=prefix)
        end = time.monotonic() + ALL_SECONDS
        timely = itertools.takewhile(lambda _: time.monotonic() < end, pages)
        names = (status.lock_name for page in timely for status in page)
        return sorted(set(itertools.islice(names, MOST_NAMES)))
    except Exception:  # a traceback would disturb the line that the user is typing
        return []
