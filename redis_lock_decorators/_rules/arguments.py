"""Read one argument of a call by its parameter's name, without binding the whole call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import MethodType

from redis_lock_decorators._rules.callables import full_name
from redis_lock_decorators.errors import LockNameError

#: Returns an argument's value from ``(args, kwargs)``; raises CallError if the call lacks it.
Reader = Callable[[tuple[object, ...], Mapping[str, object]], object]

_BELOW = "if a decorator below @redis_lock adds or takes away arguments, put @redis_lock below it"


class CallError(TypeError):
    """A call lacks an argument of its lock name; raised again as TypeError with the function."""


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a callable, as its callers see it.

    A wrapper that takes any arguments has the signature of the function that it wraps.
    """
    try:
        callee = _explicit(function)
        return inspect.signature(callee, follow_wrapped=not hasattr(callee, "__wrapped__"))
    except (TypeError, ValueError):
        raise LockNameError(
            f"{function!r:.80} has no signature, so its arguments cannot give a name: give "
            "get_lock_name=…"
        ) from None


def is_pass_through(function: Callable[..., object]) -> bool:
    """Whether a function is a wrapper that takes any arguments, so ``signature_of`` unwraps it."""
    try:
        return hasattr(function, "__wrapped__") and not _is_explicit(function)
    except ValueError:
        return False


def shift_check(
    signature: inspect.Signature,
) -> Callable[[tuple[object, ...], Mapping[str, object]], None]:
    """Return a check that positional arguments are those that the signature says.

    Decorators between a call and the wrapped function may add or remove arguments. So the call
    itself must give as many as the function needs. Added keyword arguments shift none.

    The check raises CallError if a call gives fewer, or more than the function takes.
    """
    positional = [p for p in signature.parameters.values() if p.kind in _BY_POSITION]
    most = math.inf if _takes(signature, Parameter.VAR_POSITIONAL) else len(positional)

    def refuse(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if not args:
            return
        if len(args) > most:
            raise CallError(f"too many arguments ({len(args)}); {_BELOW}")
        for parameter in positional[len(args) :]:
            if parameter.default is Parameter.empty and parameter.name not in kwargs:
                raise CallError(f"missing a required argument: {parameter.name!r}; {_BELOW}")

    return refuse


def refuse_unfit_arguments(
    get_lock_name: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Refuse arguments that do not fit the signature of ``get_lock_name``.

    Raises:
        CallError: they do not fit.
    """
    try:
        signature = inspect.signature(get_lock_name)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CallError(
            f"get_lock_name={full_name(get_lock_name)} is called with the arguments of the call, "
            f"without the function's default values: {error}; give it parameters and default "
            "values that fit"
        ) from None


def reader(signature: inspect.Signature, name: str) -> Reader:
    """Return a function that finds the argument of the parameter ``name`` in a call."""
    parameter = signature.parameters[name]
    positional = [p.name for p in signature.parameters.values() if p.kind in _BY_POSITION]
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return lambda args, kwargs: args[len(positional) :]
    if parameter.kind is Parameter.VAR_KEYWORD:
        named = {p.name for p in signature.parameters.values() if p.kind in _BY_KEYWORD}
        return lambda args, kwargs: {k: v for k, v in kwargs.items() if k not in named}
    index = positional.index(name) if name in positional else None
    return _single(signature, parameter, index)


def takes_any_keyword(signature: inspect.Signature) -> bool:
    """Whether the function has ``**kwargs``."""
    return _takes(signature, Parameter.VAR_KEYWORD)


def keyword(name: str, missing: str) -> Reader:
    """Return a function that finds a keyword argument without a parameter.

    It raises LockNameError with the message ``missing`` if the call lacks it.
    """

    def read(args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        try:
            return kwargs[name]
        except KeyError:
            raise LockNameError(missing) from None

    return read


def _single(signature: inspect.Signature, parameter: Parameter, index: int | None) -> Reader:
    name, default = parameter.name, parameter.default
    by_keyword = parameter.kind in _BY_KEYWORD

    def read(args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        if index is not None and index < len(args):
            return args[index]
        if by_keyword and name in kwargs:
            return kwargs[name]
        if default is Parameter.empty:
            raise CallError(_problem(signature, args, kwargs, name))
        return default

    return read


def _problem(
    signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object], name: str
) -> str:
    """Return the message of the TypeError that the call itself would raise."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return f"missing a required argument: {name!r}"  # Python 3.13.0 does not always notice


def _explicit(function: Callable[..., object]) -> Callable[..., object]:
    """Return the outermost of a function and those that it wraps with parameters of its own."""
    if isinstance(function, MethodType):
        return MethodType(_explicit(function.__func__), function.__self__)
    callee: Callable[..., object] = inspect.unwrap(function, stop=_is_explicit)
    return callee


def _is_explicit(function: Callable[..., object]) -> bool:
    if hasattr(function, "__signature__"):
        return True
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return False
    return not any(_takes(own, kind) for kind in _ANY)


def _takes(signature: inspect.Signature, kind: object) -> bool:
    return any(p.kind is kind for p in signature.parameters.values())


_ANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
