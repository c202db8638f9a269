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


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("x: int", []),
        ("def x(self): pass", []),
        ("def f(self, other): self.x = other", []),
        ("def f(self, other): return other.x", ["A: x"]),
        ("def f(self): x = 1", ["A: x"]),
        ("y: x", ["A: x"]),
    ],
)
def test_attribute_exists_if_its_own_class_has_it(body: str, found: list[str]) -> None:
    docstring = '"""An A.\n\n    Attributes:\n        x: a part of it.\n    """'
    (kind,) = ast.parse(f"class A:\n    {docstring}\n    {body}").body

    assert problems(kind) == found


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
    """The attributes of ``self`` that a class uses, and the names that its body defines."""
    found = {
        node.attr
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    for node in kind.body:
        if isinstance(node, Function):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            stored = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            found |= {one.id for one in stored if isinstance(one.ctx, ast.Store)}
    return found
