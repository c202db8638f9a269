"""Name templates such as "stock:{self.warehouse}:{sku}", checked and compiled at decoration."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from redis_lock_decorators._rules import arguments
from redis_lock_decorators._rules.enums import attribute_of, settled, settled_for_format
from redis_lock_decorators._rules.name_values import as_text, escaped, stable_text, written
from redis_lock_decorators.errors import LockNameError

#: Returns a piece of a name for ``(args, kwargs)``.
Writer = Callable[[tuple[object, ...], Mapping[str, object]], str]

_ROOT = re.compile(r"[^.\[]*")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\[\]]+)\]")
#: The field ``{function}``, with the escaped braces before it.
_FUNCTION = re.compile(r"(?<!\{)((?:\{\{)*)\{function\}")
_CONVERSIONS: Mapping[str, Callable[[object], str]] = {"r": repr, "s": written, "a": ascii}


def compiled(template: str, signature: inspect.Signature, function: str = "") -> Writer:
    """Return a function that formats the template for a call.

    Args:
        function: the value of ``{function}``, unless the function has such a parameter.

    Raises:
        LockNameError: the template is malformed or names a parameter the function lacks.
    """
    if "function" not in signature.parameters:
        template = _FUNCTION.sub(lambda found: found[1] + escaped(function), template)
    writers = [_piece(template, signature, *piece) for piece in _pieces(template)]
    if len(writers) == 1:
        return writers[0]
    return lambda args, kwargs: "".join([write(args, kwargs) for write in writers])


def roots(template: str) -> list[str]:
    """Return the first names of the fields of a template."""
    return [_ROOT.match(field)[0] for _, field, _, _ in _pieces(template) if field is not None]  # type: ignore[index]


def _shown(template: str) -> str:
    return repr(template) if len(template) <= 200 else f"{template[:200]!r}…"


def _pieces(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(string.Formatter().parse(template)) or [("", None, None, None)]
    except ValueError as error:
        raise LockNameError(f"the name template {_shown(template)} is malformed: {error}") from None


def _piece(
    template: str,
    signature: inspect.Signature,
    literal: str,
    field: str | None,
    spec: str | None,
    conversion: str | None,
) -> Writer:
    if field is None:
        return lambda args, kwargs: literal
    write = _field(template, signature, field, spec or "", conversion)
    if not literal:
        return write
    return lambda args, kwargs: literal + write(args, kwargs)


def _field(
    template: str,
    signature: inspect.Signature,
    field: str,
    spec: str,
    conversion: str | None,
) -> Writer:
    root = _ROOT.match(field)[0]  # type: ignore[index]  # the pattern matches the empty text
    if "{" in spec or (conversion is not None and conversion not in _CONVERSIONS):
        raise LockNameError(
            f"the name template {_shown(template)} has an unknown format in {{{field}}}: use !r, "
            "!s or !a and a format specification without fields"
        )
    read = _reader(template, signature, field, root)
    steps = _steps(template, field[len(root) :])
    write = as_text if not (spec or conversion) else partial(_formatted, template, spec, conversion)
    if not steps:
        return lambda args, kwargs: write(read(args, kwargs))

    def walk(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        value = read(args, kwargs)
        try:
            for step in steps:
                value = step(value)
        except (AttributeError, LookupError, TypeError) as error:
            raise LockNameError(
                f"the name template {_shown(template)} cannot read {{{field}}}: {_why(error)}"
            ) from error
        return write(value)

    return walk


def _why(error: Exception) -> str:
    return f"it has no item {error}" if isinstance(error, KeyError) else str(error)


def _reader(template: str, signature: inspect.Signature, field: str, root: str) -> arguments.Reader:
    """Return what reads the argument that a field begins with."""
    if root in signature.parameters:
        return arguments.reader(signature, root)
    if root == "function" and not arguments.takes_any_keyword(signature):
        raise LockNameError(
            f"the name template {_shown(template)} uses an attribute or item of {{function}}: it "
            "is a text, written {function} alone"
        )
    unknown = (
        f"the name template {_shown(template)} uses {{{field}}}, but the function takes "
        f"({', '.join(signature.parameters)})"
    )
    if not (root.isidentifier() and arguments.takes_any_keyword(signature)):
        raise LockNameError(f"{unknown}; to write a brace itself, write it twice")
    # A wrapper of a framework has only **kwargs, so the argument can be checked only in the call.
    return arguments.keyword(root, f"{unknown} and the call gives no {root}=…")


def _steps(template: str, path: str) -> list[Callable[[Any], object]]:
    steps: list[Callable[[Any], object]] = []
    while path:
        found = _STEP.match(path)
        if found is None:
            raise LockNameError(f"the name template {_shown(template)} is malformed at {path!r}")
        attribute, index = found.groups()
        if attribute in ("name", "value"):
            steps.append(partial(attribute_of, name=attribute))
        elif attribute:
            steps.append(attrgetter(attribute))
        else:
            steps.append(itemgetter(int(index) if index.isdecimal() and index.isascii() else index))
        path = path[found.end() :]
    return steps


def _formatted(template: str, spec: str, conversion: str | None, value: object) -> str:
    if conversion is None:
        stable_text(value, written(value))
        # __format__ may show other parts than __str__
        return escaped(stable_text(value, _format(template, settled_for_format(value), spec)))
    shown = settled(value) if conversion == "s" else value
    text = stable_text(value, _CONVERSIONS[conversion](shown))
    return escaped(_format(template, text, spec))


def _format(template: str, value: object, spec: str) -> str:
    """Return ``format(value, spec)``.

    Raises:
        LockNameError: the value cannot be formatted so.
    """
    try:
        return format(value, spec)
    except (TypeError, ValueError) as error:
        raise LockNameError(
            f"the name template {_shown(template)} cannot write a value: {error}"
        ) from error
