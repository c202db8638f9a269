"""``@redis_lock``: the wrapper for each kind of callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

import six

from redis_lock_decorators._attempts import Attempt
from redis_lock_decorators._io.client_checks import refuse_misplaced
from redis_lock_decorators._rules import naming
from redis_lock_decorators._rules.arguments import is_pass_through, signature_of
from redis_lock_decorators._rules.callables import (
    Kind,
    full_name,
    kind_of,
    refuse_manager,
    refuse_unrun,
)
from redis_lock_decorators._rules.fitting import refuse_unbound
from redis_lock_decorators._rules.on_busy import (
    OnBusy,
    answer,
    checked_busy,
    refuse_other_arguments,
    refuse_unlike,
)
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators._shared.lease_base import loss
from redis_lock_decorators._shared.lock_base import D, LockBase, described
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.asyncio import _wrappers
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.lease import Lease, abandon
from redis_lock_decorators.redislock import RedisLock

F = TypeVar("F", bound=Callable[..., Any])


def decorated(
    function: F,
    config: LockConfig,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None,
    on_busy: OnBusy,
) -> F:
    """Return the function with a lock around each call; check all that can be checked now.

    Raises:
        LockNameError: the name template is invalid.
        ConfigurationError: the object cannot be decorated, or ``on_busy`` does not fit it.
    """
    if isinstance(function, (classmethod, staticmethod)):
        inner = decorated(function.__func__, config, lock_name, get_lock_name, on_busy)
        return cast(F, type(function)(inner))
    refuse_misplaced(function, get_lock_name)
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@redis_lock decorates functions and methods, not {shown_value(function)}: "
            + _cure(function)
        )
    with naming.errors_naming(function):
        return _decorated(function, config, lock_name, get_lock_name, on_busy)


def _cure(thing: object) -> str:
    """Return what to decorate instead of an object that is no function."""
    if inspect.isclass(thing) or hasattr(thing, "__get__"):
        return "put it on the method that does the work, under @property and the like"
    return "if this is to be a lock's name, a name is text or a list of texts"


def _decorated(
    function: F,
    config: LockConfig,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None,
    on_busy: OnBusy,
) -> F:
    refuse_manager(function)
    kind = kind_of(function)
    wrap, lock = _wrapper_and_lock(kind)
    config.refuse_client(lock._awaited)
    busy = checked_busy(on_busy)
    if busy is not None:
        refuse_unlike(busy, kind)
        if on_busy != "skip":
            refuse_other_arguments(busy, function)
    namer = naming.namer(function, lock_name, get_lock_name)
    config = config.of_function(naming.label_of(function, lock_name), function)
    wrapper: Any = six.wraps(function)(wrap(function, config, namer, busy))
    wrapper.lock_for = _lock_for(function, config, namer, lock)
    return cast(F, wrapper)


def _lock_for(
    function: Callable[..., Any], config: LockConfig, namer: naming.Namer, kind: type[D]
) -> Callable[..., D]:
    def lock_for(*args: Any, **kwargs: Any) -> D:
        """Return the lock of a call with these arguments; for a method, pass ``self`` first."""
        if args:
            refuse_unbound(function, args[0])
        _refuse_unfit_arguments(function, args, kwargs)
        return described(kind, config, namer(args, kwargs))

    return lock_for


def _refuse_unfit_arguments(
    function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Refuse arguments that do not fit the function's signature."""
    if is_pass_through(function):
        return  # the wrapped function may be called with other arguments
    try:
        signature_of(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{full_name(function)}: {error}") from None


def _plain(
    function: Callable[..., Any],
    config: LockConfig,
    namer: naming.Namer,
    busy: Callable[..., Any] | None,
) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        attempt = Attempt(config, namer(args, kwargs))
        try:
            with attempt as refused:
                if refused is None:
                    return refuse_unrun(function, function(*args, **kwargs))
        except BaseException:
            abandon(attempt.lease)
            raise
        if busy is not None:
            return answer(busy, function, busy(*args, **kwargs))
        try:
            raise refused
        finally:
            del refused  # it refers to this frame by its trace

    return wrapper


def _generator(
    function: Callable[..., Any],
    config: LockConfig,
    namer: naming.Namer,
    busy: Callable[..., Any] | None,
) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        attempt = Attempt(config, namer(args, kwargs))
        try:
            with attempt as refused:
                if refused is None:
                    return (yield from _Steps(attempt.lease, function(*args, **kwargs)))
        except BaseException:
            abandon(attempt.lease)
            raise
        if busy is not None:
            return (yield from answer(busy, function, busy(*args, **kwargs)) or ())
        try:
            raise refused
        finally:
            del refused  # it refers to this frame by its trace

    return wrapper


class _Steps(Generator[Any, Any, Any]):
    """A generator whose steps, and no other code, run with its lease as the current one.

    Each step may run in another thread. Once the lease is lost, the next step raises
    ``LockLostError`` in the generator instead.
    """

    def __init__(self, lease: Lease, steps: Generator[Any, Any, Any]) -> None:
        self._lease = lease
        self._steps = steps
        lease._suspend()

    def send(self, value: Any) -> Any:
        if self._lease.lost:
            return self.throw(loss(self._lease))
        return self._step(self._steps.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._steps.throw, *error)

    def close(self) -> None:
        self._step(self._steps.close)

    def _step(self, resume: Callable[..., Any], *arguments: Any) -> Any:
        self._lease._enter()
        try:
            return resume(*arguments)
        finally:
            self._lease._suspend()


def _wrapper_and_lock(kind: Kind) -> tuple[Callable[..., Any], type[LockBase[Any]]]:
    """Return the wrapper and the lock class for this kind of function."""
    if kind is Kind.PLAIN:
        return _plain, RedisLock
    if kind is Kind.GENERATOR:
        return _generator, RedisLock
    wrap = _wrappers.coroutine if kind is Kind.COROUTINE else _wrappers.async_generator
    return wrap, AsyncRedisLock
