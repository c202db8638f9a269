"""The page on shared structures names exactly the attributes that are marked as shared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "shared-structures.rst"
MODULES = sorted((ROOT / "redis_lock_decorators").rglob("*.py"))
#: A comment that says who uses an attribute; "any thread" makes it a shared one.
MARKER = re.compile(r"#: .*\b(any thread|loop only)\b|#: any task|#: the worker's thread only")


def targets(statement: ast.stmt) -> Iterator[str]:
    """The names and attributes that a statement assigns; those of ``__slots__`` are its items."""
    found = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        found = [statement.target]
    for part in [one for target in found for one in ast.walk(target)]:
        if isinstance(part, ast.Name) and part.id == "__slots__":
            yield from ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Name) and part.id != "self":
            yield part.id


def assignments(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.stmt]]:
    """Each assignment in a module, with the class, or module, that has the attribute."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Assign, ast.AnnAssign)):
            yield owner, child
        name = child.name if isinstance(child, ast.ClassDef) else owner
        yield from assignments(child, name)


def marker_of(statement: ast.stmt, lines: list[str]) -> str:
    """The marker of an assignment: in its last line, or above the group that it is in."""
    found = MARKER.search(lines[(statement.end_lineno or 0) - 1])
    above = statement.lineno - 2
    while found is None and above >= 0 and lines[above].strip():
        if lines[above].strip().startswith("#:"):
            found = MARKER.search(lines[above])
        above -= 1
    return "" if found is None else found.group()


def attributes(text: str, module: str) -> Iterator[tuple[str, str]]:
    """Every attribute that a module assigns, as ``Class.attribute``, with its marker."""
    lines = text.splitlines()
    for owner, statement in assignments(ast.parse(text), module):
        for name in targets(statement):
            yield f"{owner}.{name}", marker_of(statement, lines)


ALL = [found for path in MODULES for found in attributes(path.read_text(), path.stem)]
MARKED = {name for name, marker in ALL if "any thread" in marker}


def named(page: str) -> set[str]:
    """The attributes in the first column of the tables: ``Class.attribute``, then ``.more``."""
    found, owner = set(), ""
    for row in re.findall(r"^(``\w+\.\w+``(?:, ``\.\w+``)*)", page, re.MULTILINE):
        for before, name in re.findall(r"``(\w*)\.(\w+)``", row):
            owner = before or owner
            found.add(f"{owner}.{name}")
    return found


def test_every_attribute_that_any_thread_may_use_is_on_the_page() -> None:
    assert sorted(MARKED - named(PAGE.read_text())) == []


def test_every_attribute_on_the_page_exists_and_is_marked() -> None:
    assert sorted(named(PAGE.read_text()) - MARKED) == []


SEVERAL = """
class A:
    def __init__(self):
        #: any thread: the first of them
        # it has a comment
        self.b = 1
        self.c: int = 2
        #: loop only
        self.d = 3

        self.e = 4
"""


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (SEVERAL, ["A.b", "A.c"]),
        ("class A:\n    def f(self):\n        self.b = {}  #: any thread", ["A.b"]),
        ("class A:\n    __slots__ = ('b', 'c')  #: any thread", ["A.b", "A.c"]),
        ("#: any thread\nb = 1\n\nc = 2", ["module.b"]),
    ],
)
def test_a_marker_is_in_the_line_or_above_its_group(text: str, marked: list[str]) -> None:
    found = [name for name, marker in attributes(text, "module") if "any thread" in marker]

    assert found == marked
