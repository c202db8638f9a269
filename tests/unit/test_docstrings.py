"""Docstrings name only existing attributes and arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import redis_lock_decorators

PACKAGE = Path(redis_lock_decorators.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("module", MODULES)
def test_docstring_names_existing_attributes_and_arguments(module: str) -> None:
    tree = ast.parse((PACKAGE / module).read_text())

    found = [problem for node in ast.walk(tree) for problem in problems(node)]

    assert found == []


def problems(node: ast.AST) -> list[str]:
    """The names in a docstring that do not exist in the code."""
    if isinstance(node, ast.ClassDef):
        unknown = named(node, "Attributes") - attributes(node)
        makers = [one for one in node.body if isinstance(one, Function) and one.name == "__init__"]
        if makers and not any(maker.args.kwarg for maker in makers):
            unknown |= named(node, "Args").difference(*map(arguments, makers))
        return [f"{node.name}: {name}" for name in sorted(unknown)]
    if isinstance(node, Function) and node.args.kwarg is None:
        return [f"{node.name}: {name}" for name in sorted(named(node, "Args") - arguments(node))]
    return []


def named(node: ast.ClassDef | Function, section: str) -> set[str]:
    text = ast.get_docstring(node) or ""
    found = re.search(rf"^{section}:\n((?: .*\n?|\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^    (\w+):", found.group(1), re.MULTILINE)) if found else set()


def arguments(function: Function) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def attributes(kind: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(kind):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, Function):
            found.add(node.name)
    return found
