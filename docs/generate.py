"""The parts of pages that Sphinx generates: the program's help, its scripts, the examples."""

from __future__ import annotations

import textwrap
from pathlib import Path

from click.testing import CliRunner

from redis_lock_decorators._lua import INCLUDED, files, script
from redis_lock_decorators.cli import main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: The comment in a page that is replaced by the text of the function of that name.
MARKER = ".. generated: {}\n"


def filled(page: str) -> str:
    """The text of a page with its generated parts."""
    for part in (command_help, scripts, examples):
        marker = MARKER.format(part.__name__)
        if marker in page:
            page = page.replace(marker, part())
    return page


def command_help() -> str:
    """A section for the command and for each of its verbs, with the text of ``--help``."""
    return "\n".join(_help(verb) for verb in ("", *sorted(main.commands)))


def _help(verb: str) -> str:
    asked = CliRunner().invoke(
        main, [*verb.split(), "--help"], prog_name="redis-lock", terminal_width=88
    )
    return _section(f"redis-lock {verb}".strip(), asked.output)


def scripts() -> str:
    """A section for each script: the comment at its beginning, and its SHA-1."""
    return "\n".join(_script(verb) for verb in sorted(INCLUDED))


def _script(verb: str) -> str:
    lines = files("redis_lock_decorators._lua").joinpath(f"{verb}.lua").read_text().splitlines()
    length = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    header = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:length])
    return _section(verb, f"{header}\nSHA-1 {script(verb).sha.decode()}")


def examples() -> str:
    """A link for each example, which publishes it with the site."""
    paths = sorted(EXAMPLES.rglob("*.py"))
    names = [path.relative_to(EXAMPLES.parent).as_posix() for path in paths]
    return "".join(f"* :download:`{name} </../{name}>`\n" for name in names)


def _section(title: str, text: str) -> str:
    body = textwrap.indent(text.strip(), "   ")
    return f"``{title}``\n{'~' * (len(title) + 4)}\n\n.. code-block:: text\n\n{body}\n"
