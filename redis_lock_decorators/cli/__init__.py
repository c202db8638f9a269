"""The command ``redis-lock``: one module for each of its verbs.

It is built on the public names of the package only. ``click`` and ``rich`` are imported here and
nowhere else; the extra ``cli`` installs them.
"""

from __future__ import annotations

import sys

try:
    import click as _click  # noqa: F401
    import rich as _rich  # noqa: F401
except ModuleNotFoundError as error:
    sys.exit(
        f"redis-lock needs {error.name}: install it with pip install 'redis_lock_decorators[cli]'"
    )

from redis_lock_decorators.cli.program import main

__all__ = ["main"]
