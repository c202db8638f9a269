"""Reading one argument of a call by its parameter's name, without binding the whole call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter

from redis_lock_decorators.errors import LockNameError

#: Gives an argument's value from ``(args, kwargs)``; raises TypeError if the call lacks it.
Reader = Callable[[tuple[object, ...], Mapping[str, object]], object]


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The signature of any callable, as a caller sees it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise LockNameError(
            f"{function!r:.80} tells no signature, so no name can be made from its arguments: "
            "give get_lock_name=…"
        ) from None


def reader(signature: inspect.Signature, name: str) -> Reader:
    """A function that finds the argument of the parameter called ``name`` in a call."""
    parameter = signature.parameters[name]
    positional = [p.name for p in signature.parameters.values() if p.kind in _BY_POSITION]
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return lambda args, kwargs: args[len(positional) :]
    if parameter.kind is Parameter.VAR_KEYWORD:
        named = {p.name for p in signature.parameters.values() if p.kind in _BY_KEYWORD}
        return lambda args, kwargs: {k: v for k, v in kwargs.items() if k not in named}
    place = positional.index(name) if name in positional else None
    return _single(signature, parameter, place)


def takes_any_keyword(signature: inspect.Signature) -> bool:
    """Whether a call may name arguments that the function does not."""
    return any(p.kind is Parameter.VAR_KEYWORD for p in signature.parameters.values())


def keyword(name: str, missing: str) -> Reader:
    """A function that finds a keyword argument for which there is no parameter.

    It raises LockNameError with the sentence ``missing`` if the call lacks it.
    """

    def read(args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        try:
            return kwargs[name]
        except KeyError:
            raise LockNameError(missing) from None

    return read


def _single(signature: inspect.Signature, parameter: Parameter, place: int | None) -> Reader:
    name, default = parameter.name, parameter.default
    by_keyword = parameter.kind in _BY_KEYWORD

    def read(args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        if place is not None and place < len(args):
            return args[place]
        if by_keyword and name in kwargs:
            return kwargs[name]
        if default is Parameter.empty:
            signature.bind(*args, **kwargs)  # raises the TypeError that the call itself would
            raise TypeError(f"missing a required argument: {name!r}")  # Python 3.13.0 may not
        return default

    return read


_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
