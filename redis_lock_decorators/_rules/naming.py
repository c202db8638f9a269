"""The rules that name the lock of each call of a decorated function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import Parameter
from types import FunctionType

from redis_lock_decorators._rules import arguments, templates
from redis_lock_decorators._rules.callables import Kind, full_name, kind_of
from redis_lock_decorators._rules.keys import checked_name, checked_names, is_name, key_of
from redis_lock_decorators._rules.name_values import as_text
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError, LockError, LockNameError

LockName = str | bytes | Sequence[str | bytes]
GetLockName = Callable[..., LockName]
#: Returns the checked lock names for ``(args, kwargs)``.
Namer = Callable[[tuple[object, ...], Mapping[str, object]], tuple[str, ...]]

#: The cure if the first argument, which is the name by default, cannot name the lock.
_BY_FIRST = (
    '. Without a name the first argument is the name: @redis_lock("{function}") is one lock for '
    "all calls"
)


def namer(
    function: Callable[..., object],
    lock_name: LockName | None,
    get_lock_name: GetLockName | None,
) -> Namer:
    """Return the rule that names the lock of each call of ``function``, checked at decoration.

    Raises:
        LockNameError: a template is invalid, or the function's arguments cannot give a name.
        ConfigurationError: ``lock_name`` and ``get_lock_name`` are both given.
    """
    refuse_two_ways(lock_name, get_lock_name)
    if isinstance(function, partial):
        return _of_partial(function, namer(function.func, lock_name, get_lock_name))
    if get_lock_name is not None:
        return _naming_function(called(get_lock_name), function)
    signature = arguments.signature_of(function)
    if lock_name is not None:
        return _naming_function(_from_templates(lock_name, signature, function), function)
    return _naming_function(_from_first_argument(function, signature), function, _advice_for_first)


def label_of(function: Callable[..., object], lock_name: LockName | None) -> str:
    """Return what all locks of a decorated function are labelled by, whatever its arguments."""
    return full_name(function) if lock_name is None else ", ".join(checked_names(lock_name))


@contextmanager
def errors_naming(function: Callable[..., object]) -> Iterator[None]:
    """Add the name of the decorated function to errors of this block."""
    try:
        yield
    except (ConfigurationError, LockNameError) as error:
        _add_function(error, function)
        raise


def _advice_for_first(function: Callable[..., object], args: tuple[object, ...]) -> str:
    """Return what to do if the first argument cannot name the lock."""
    if not (args and isinstance(args[0], FunctionType)):
        return _BY_FIRST
    return (
        f". If {full_name(function)} is to name the lock of {full_name(args[0])}: "
        f"@redis_lock(get_lock_name=…)"
    )


def _naming_function(
    name: Namer,
    function: Callable[..., object],
    cure: Callable[[Callable[..., object], tuple[object, ...]], str] = lambda function, args: "",
) -> Namer:
    """Return the rule with errors that name the function."""

    def named(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, ...]:
        try:
            return name(args, kwargs)
        except LockNameError as error:
            _add_function(error, function, cure(function, args))
            raise
        except arguments.CallError as error:
            raise TypeError(f"@redis_lock on {full_name(function)}: {error}") from None

    return named


def _add_function(error: LockError, function: Callable[..., object], cure: str = "") -> None:
    place, message = f"@redis_lock on {full_name(function)}: ", error.args[0]
    if not message.startswith("@redis_lock on "):  # it names another decorated function already
        error.args = (f"{place}{message}{cure}",)


def add_lock(error: ConfigurationError, lock_name: object, where: str = "RedisLock") -> None:
    """Add the name of the lock to an error of its options, if it has a valid name."""
    if is_name(lock_name):
        error.args = (f"{where}({shown_value(lock_name)}): {error.args[0]}",)


def refuse_two_ways(lock_name: object, get_lock_name: GetLockName | None) -> None:
    """Refuse two names for a lock, or a ``get_lock_name`` that is no plain function."""
    if get_lock_name is not None and not callable(get_lock_name):
        raise ConfigurationError(_not_callable(get_lock_name))
    if lock_name is not None and get_lock_name is not None:
        raise ConfigurationError("give lock_name or get_lock_name, not both")
    if get_lock_name is not None and (kind := kind_of(get_lock_name)) is not Kind.PLAIN:
        raise ConfigurationError(
            f"get_lock_name={full_name(get_lock_name)} is {kind.value}: give a function that "
            "returns the name"
        )


def _not_callable(given: object) -> str:
    """Return the message about a second argument that is no function."""
    problem = f"get_lock_name={shown_value(given)} cannot be called"
    if isinstance(given, (int, float)):
        return f"{problem}: durations are given by name, as in expire={shown_value(given)}"
    return f"{problem}: for a text use lock_name, for several names a list"


def called(get_lock_name: GetLockName) -> Namer:
    """Return the rule that calls the user's function with the call's arguments."""

    def name(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, ...]:
        try:
            given = get_lock_name(*args, **kwargs)
        except TypeError:
            arguments.refuse_unfit_arguments(get_lock_name, args, kwargs)
            raise
        return checked_names(given)

    return name


def first_argument(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, ...]:
    """Return the default name of a call: its first argument as text."""
    if args:
        return (checked_name(as_text(args[0])),)
    raise LockNameError("the lock has no name: give lock_name, get_lock_name or a first argument")


def _from_templates(
    lock_name: LockName, signature: inspect.Signature, function: Callable[..., object]
) -> Namer:
    texts = checked_names(lock_name)
    for text in texts:
        if "{" not in text:
            key_of("", text)  # a name that no lock can have is refused now
    own_name = full_name(function)
    writers = [templates.compiled(text, signature, own_name) for text in texts]
    name = _written_by(writers)
    reads = any(root in signature.parameters for text in texts for root in templates.roots(text))
    return (
        _with_shift_check(name, signature)
        if reads and arguments.is_pass_through(function)
        else name
    )


def _written_by(writers: list[templates.Writer]) -> Namer:
    if len(writers) == 1:
        write = writers[0]
        return lambda args, kwargs: (checked_name(write(args, kwargs)),)
    return lambda args, kwargs: checked_names([write(args, kwargs) for write in writers])


def _with_shift_check(name: Namer, signature: inspect.Signature) -> Namer:
    """Return the rule, which refuses calls whose arguments do not fit the signature."""
    refuse_shifted = arguments.shift_check(signature)

    def checked(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, ...]:
        refuse_shifted(args, kwargs)
        return name(args, kwargs)

    return checked


def _from_first_argument(function: Callable[..., object], signature: inspect.Signature) -> Namer:
    own_name = (full_name(function),)
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.kind is Parameter.VAR_KEYWORD:
        return lambda args, kwargs: own_name
    if first.kind is Parameter.VAR_POSITIONAL:
        return lambda args, kwargs: first_argument(args, kwargs) if args else own_name
    read = arguments.reader(signature, first.name)
    return lambda args, kwargs: (checked_name(as_text(read(args, kwargs))),)


def _of_partial(function: partial[object], inner: Namer) -> Namer:
    bound, named = function.args, function.keywords
    return lambda args, kwargs: inner((*bound, *args), {**named, **kwargs})
