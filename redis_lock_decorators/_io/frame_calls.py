"""Which function a frame called, as far as it is known: a signal handler is called by none."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

#: A signal handler is a plain function: no coroutine runs in place of an interrupted function.
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: What refers to the function behind a partial, a method, a decorated function and a property.
_WRAPPED = ("func", "__func__", "__wrapped__", "fget")
#: How many wrappers a function may have.
_DEPTH = 10
#: The numbers of all signals, listed once, as that takes long.
_SIGNALS = tuple(map(int, signal.valid_signals()))


def calls(caller: FrameType, frame: FrameType) -> bool:
    """Whether the caller's code names the function of the next frame; False if it is unknown.

    It does so by a local variable, by an attribute of one, or by an attribute of such an attribute,
    as in ``self.credential_provider.get_credentials()``.
    """
    if frame.f_code.co_flags & _COROUTINE:
        return True
    return any(frame.f_code in _codes(function) for function in _named(caller))


def gets_interrupted(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether a frame gets the interrupted frame as an argument, as those of signal handlers do."""
    for name in _argument_names(frame.f_code):
        value = frame.f_locals.get(name)
        if value is interrupted:
            return True
        if type(value) is tuple and any(item is interrupted for item in value):
            return True
    return False


def registered_codes() -> set[CodeType]:
    """The code of all registered signal handlers that have some."""
    handlers = map(signal.getsignal, _SIGNALS)
    usual = signal.default_int_handler  # of C, and to examine it takes long
    return {
        code
        for handler in handlers
        if callable(handler) and handler is not usual
        for code in _codes(handler)
    }


def _argument_names(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    return code.co_varnames[: count + starred]


def _named(caller: FrameType) -> Iterator[object]:
    """The objects that the code of a frame may call."""
    names, variables = caller.f_code.co_names, list(caller.f_locals.values())
    yield from variables
    for variable in variables:
        for found in _attributes(variable, names):
            yield found
            yield from _attributes(found, names)


def _attributes(thing: object, names: tuple[str, ...]) -> Iterator[object]:
    if type(thing).__module__ == "builtins":  # text, numbers, functions: no hook is among theirs
        return
    for name in names:
        with suppress(Exception):  # raised by code of the program that looks up attributes
            yield _attribute(thing, name)


def _attribute(thing: object, name: str) -> object:
    """An attribute, without calling a property; a proxy is asked for it, as the library does."""
    try:
        found = inspect.getattr_static(thing, name)
    except AttributeError:
        if hasattr(type(thing), "__getattr__"):
            return getattr(thing, name)
        raise
    return getattr(thing, name) if isinstance(found, MemberDescriptorType) else found


def _codes(function: Any) -> set[CodeType]:
    """The code of a function, of all that it wraps, and of what calls an object."""
    found: set[CodeType] = set()
    wrappers = [function]
    for _ in range(_DEPTH):
        if not wrappers:
            break
        wrappers = [inner for one in wrappers for inner in _unwrapped(one, found)]
    return found


def _unwrapped(function: Any, codes: set[CodeType]) -> list[Any]:
    code = _static(function, "__code__")
    if isinstance(code, CodeType):
        codes.add(code)
    elif isinstance(function, type):
        made_by = (_static(function, "__init__"), _static(function, "__new__"))
        return [one for one in made_by if one is not None]
    found = [_static(function, name) for name in _WRAPPED]
    if code is None and not any(found):
        found = [_static(type(function), "__call__")]
    return [one for one in found if one is not None and one is not function]


def _static(thing: object, name: str) -> Any:
    found = inspect.getattr_static(thing, name, None)
    is_slot = type(found).__name__ in ("member_descriptor", "getset_descriptor")
    return getattr(thing, name, None) if is_slot else found
