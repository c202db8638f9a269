"""``manage.py redis_lock``: ``redis-lock`` with the client and the prefix of the settings."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from redis_lock_decorators.contrib.django.connection import factories, read


class Command(BaseCommand):
    """The command; its verbs are those of ``redis-lock``."""

    help = "See, break, test and hold locks: redis_lock ls, show, break, run, doctor; each --help"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Accept what ``redis-lock`` accepts, after its verb."""
        parser.add_argument("verb", help="ls, show, break, run, doctor, bench")
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *, verb: str, arguments: list[str], **_: Any) -> None:
        """Run the verb; the process ends with its exit code."""
        from redis_lock_decorators.cli.program import main  # needs the extra cli

        prefix = read().get("OPTIONS", {}).get("prefix")
        main.main(
            [verb, *arguments],
            prog_name="manage.py redis_lock",
            obj=factories()[0],
            default_map={"prefix": prefix} if prefix else None,
        )
