"""Run the Python code of a page: ``python snippets.py PAGE``.

All its ``code-block:: python`` run from the first to the last, in one module. Those with ``>>>``
are doctests.
"""

from __future__ import annotations

import doctest
import re
import sys
import textwrap
import types
from pathlib import Path

_BLOCK = re.compile(
    r"^(?P<indent> *)\.\. code-block:: python\n(?:(?P=indent) +:.*\n)*\n"
    r"(?P<code>(?:(?P=indent) +\S.*\n|[ \t]*\n)+)",
    re.MULTILINE,
)


def blocks(page: Path) -> list[tuple[int, str]]:
    """The code of each block, and the number of lines before it."""
    text = page.read_text("utf-8") + "\n"
    return [
        (text.count("\n", 0, found.start("code")), textwrap.dedent(found["code"]))
        for found in _BLOCK.finditer(text)
    ]


def run(page: Path) -> int:
    """Run the blocks; return how many examples of the doctests failed."""
    module = types.ModuleType("snippets_of_the_page")
    module.__file__ = str(page)
    sys.modules[module.__name__] = module
    names = vars(module)
    failures = 0
    for before, code in blocks(page):
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), before)
            test.globs = names
            found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
            failures += found.failed
        else:
            exec(compile("\n" * before + code, str(page), "exec"), names)  # noqa: S102
    return failures


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])) > 0)
