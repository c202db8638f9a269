"""Record sessions of the tutorial and the how-to pages: ``python docs/record_pages.py``.

Each block after a comment ``.. recorded: NAME`` is replaced by the session of that name.
"""

from __future__ import annotations

import pathlib
import re
import socket
import sys
import time

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.append(str(DOCS))
from record import BLOCK, Console, sessions, shape  # noqa: E402

from redis_lock_decorators.testing import LocalServer  # noqa: E402

__all__ = ["SESSIONS", "pages", "recorded", "sessions", "shape"]

#: Where the programs of the sessions are.
FOLDER = DOCS / "tutorial"
#: The host in the sessions.
HOST = "shop-1"

#: The commands of each session, and pauses in seconds. Lines of one text run in one shell. A
#: command that ends with "&" runs while the next ones do; its output is not recorded.
SESSIONS: dict[str, tuple[str | float, ...]] = {
    "demo": ("redis-lock demo",),
    "server": ("python server.py",),
    "two processes": (
        "python charge.py 42 first 1 &\nsleep 0.5\npython charge.py 42 second 1\nwait",
    ),
    "a crash": ("python crash.py; echo $?", "python charge.py 42 next 1"),
    "a loss": ("python report.py &\nsleep 2\nredis-lock break report --yes\nwait",),
    "asyncio": ("python mail.py",),
    "fleet": ("python fleet.py",),
    "who": (
        *("python charge.py 42 first 8 &", "sleep 1", 1),
        *("python charge.py 42 second 1 &", "sleep 1", 1),
        *("redis-lock ls", "redis-lock show order:42"),
    ),
    "cron": (
        "redis-lock run digest --on-busy skip --min-hold 3000 -- echo sends the digest",
        "redis-lock run digest --on-busy skip --min-hold 3000 -- echo sends the digest",
        "redis-lock show digest",
    ),
    "deploy": (
        *("redis-lock run deploy -- sleep 6 &", 2),
        "redis-lock run deploy -- echo deploys",
        "redis-lock run deploy --on-busy wait --acquire-time 60 -- echo deploys",
    ),
    "acl": ("redis-lock doctor --acl shop",),
}
SILENT = "> /dev/null 2>&1 "
#: What is left out: the progress of the demo, and what the shell adds when a program is killed.
LEFT_OUT = re.compile(r"(?m)^ *(?:[#.]+ \d+ of \d+ sections|bash: line .* Killed .*)\n+")


def recorded(name: str) -> str:
    """The text of a session, indented."""
    with LocalServer() as server:
        console = Console(server, FOLDER)
        for command in SESSIONS[name]:
            if not isinstance(command, str):
                time.sleep(command)
            elif command.endswith("&"):
                console.run(f"{command[:-1]}{SILENT}&")
            else:
                console.run(command)
    text = console.text.replace(SILENT, "").replace(socket.gethostname(), HOST)
    return LEFT_OUT.sub("", text)


def pages() -> list[pathlib.Path]:
    """The pages with sessions."""
    return sorted([*FOLDER.glob("*.rst"), *(DOCS / "how-to").glob("*.rst")])


def main() -> None:
    """Replace all sessions in the pages."""
    begin = ".. recorded: {}\n\n.. code-block:: console\n\n{}"
    for path in pages():
        page = BLOCK.sub(
            lambda found: begin.format(found["name"], recorded(found["name"])),
            path.read_text("utf-8"),
        )
        path.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
