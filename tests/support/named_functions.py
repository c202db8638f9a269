"""Functions that are named by their arguments."""

import inspect
from typing import Any

from redis_lock_decorators._rules.naming import namer

#: The module in the names of these functions.
MODULE = __name__


def plain(x: Any = 1, y: Any = 2) -> None: ...
def needed(x: Any, y: Any) -> None: ...
def none() -> None: ...


class Shop:
    """A class with every kind of method."""

    def __str__(self) -> str:
        return "shop 7"

    def method(self, x: Any = 1) -> None: ...

    @classmethod
    def of_class(cls, x: Any = 1) -> None: ...

    @staticmethod
    def static(x: Any = 1) -> None: ...

    def __call__(self, x: Any = 1) -> None: ...


class Bare:
    def method(self) -> None: ...


def names(function: Any, *args: Any, lock_name: Any = None, **kwargs: Any) -> tuple[str, ...]:
    """The lock names of a call."""
    return namer(function, lock_name, None)(args, kwargs)


def bound(function: Any, args: Any, kwargs: Any) -> Any:
    """The arguments of a call by parameter, with the defaults."""
    arguments = inspect.signature(function).bind(*args, **kwargs)
    arguments.apply_defaults()
    return arguments.arguments
