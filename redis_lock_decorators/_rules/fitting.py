"""Whether a function that the user gives takes the arguments that it will be called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from types import FunctionType
from typing import Any

from redis_lock_decorators._rules.shown_values import shown_value

_OBJECT = object()
#: The usual names of a method's first parameter.
_OWNERS = frozenset(("self", "cls", "klass", "mcs", "metacls"))


def fits(function: Callable[..., Any], arguments: tuple[object, ...]) -> bool:
    """Whether these positional arguments fit; True if that cannot be known."""
    if type(function) is FunctionType and _fits_plainly(function, len(arguments)):
        return True
    signature = _signature(function)
    return signature is None or _binds(signature, arguments, {})


def takes_calls_of(function: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether ``function`` takes the shortest call of ``other``, by position or by keyword."""
    own, others = _signature(function), _signature(other)
    if own is None or others is None:
        return True
    needed = [one for one in others.parameters.values() if _is_needed(one)]
    last = [one.name for one in needed if one.kind is Parameter.KEYWORD_ONLY]
    first = [one for one in needed if one.kind is not Parameter.KEYWORD_ONLY]
    by_position = tuple(_OBJECT for _ in first)
    only = [one for one in first if one.kind is Parameter.POSITIONAL_ONLY]
    named = [one.name for one in first[len(only) :]]
    return _binds(own, by_position, dict.fromkeys(last, _OBJECT)) or _binds(
        own, by_position[: len(only)], dict.fromkeys([*named, *last], _OBJECT)
    )


def refuse_unbound(method: Callable[..., Any], first: object) -> None:
    """Refuse a first argument that is not an object (or class) with this method.

    ``lock_for`` is an attribute of the function, so ``store.count.lock_for("nut")`` does not pass
    the object: with default values "nut" would be taken as ``self``, and name another lock.

    Raises:
        TypeError: it is not; a function that is no method takes anything.
    """
    owner = getattr(method, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or _first_name(method) not in _OWNERS:
        return
    kind = first if isinstance(first, type) else first.__class__
    if any(base.__qualname__ == owner or _has(base, method) for base in kind.__mro__):
        return
    name = f"{owner.rpartition('.')[2]}.{getattr(method, '__name__', '')}"
    raise TypeError(
        f"lock_for of the method {name} takes the object first (for a class method the class), not "
        f"{shown_value(first)}: {name}.lock_for(object, …)"
    )


def _first_name(function: Callable[..., Any]) -> str:
    signature = _signature(function)
    return next(iter(signature.parameters), "") if signature is not None else ""


def _has(kind: type, method: Callable[..., Any]) -> bool:
    """Whether the method was put into a class that is not the one it was defined in."""
    return any(_is_of(value, method) for value in list(vars(kind).values()))


def _is_of(value: object, method: Callable[..., Any]) -> bool:
    value = getattr(value, "__func__", value)
    while value is not method:
        value = getattr(value, "__wrapped__", None)
        if value is None:
            return False
    return True


def _fits_plainly(function: FunctionType, count: int) -> bool:
    """Whether a function of plain positional parameters takes so many: the common case, fast."""
    code = function.__code__
    least = code.co_argcount - len(function.__defaults__ or ())
    return least <= count <= code.co_argcount and not code.co_kwonlyargcount


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return None


def _binds(
    signature: inspect.Signature, arguments: tuple[object, ...], named: dict[str, object]
) -> bool:
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        return False
    return True


def _is_needed(parameter: Parameter) -> bool:
    is_variable = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not is_variable
