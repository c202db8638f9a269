"""The name of the main module, the same in every process that runs or imports its file."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping

_MAIN = "__main__"
#: The name that a process started by multiprocessing's "spawn" and "forkserver" gives to the main
#: module of its parent.
_OF_PARENT = "__mp_main__"
_QUALIFIED = re.compile(r"\b(__(?:mp_)?main__)\.(?=(\w+))")


def module_of(owner: Callable[..., object]) -> str:
    """Return the module of a function or class; the main module by its import name, if it has one.

    A program started as ``python -m package.job`` has one, ``python job.py`` has none.
    """
    module = getattr(owner, "__module__", None) or "builtins"
    if module not in (_MAIN, _OF_PARENT):
        return module
    own = getattr(inspect.unwrap(owner), "__globals__", {})
    if own.get("__name__") == module:  # a function that is decorated is not in sys.modules yet
        return _import_name(own)
    return _main_name(module, owner.__qualname__.partition(".")[0])


def with_import_names(text: str) -> str:
    """Return a text in which the names of classes of the main module begin with its import name."""
    if "main__." not in text:
        return text
    return _QUALIFIED.sub(lambda found: f"{_main_name(found[1], found[2])}.", text)


def _main_name(module: str, attribute: str) -> str:
    """Return the import name of the main module, if it has the attribute.

    Profilers and debuggers may run a program in a main module other than that in ``sys.modules``.
    """
    namespace = getattr(sys.modules.get(module), "__dict__", {})
    return _import_name(namespace) if attribute in namespace else _MAIN


def _import_name(namespace: Mapping[str, object]) -> str:
    return getattr(namespace.get("__spec__"), "name", None) or _MAIN
