"""What Django's decorators and base classes say about a view."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction

from redis_lock_decorators.errors import ConfigurationError


def refuse_misuse(lock_name: object, get_lock_name: object, options: dict[str, Any]) -> None:
    """Refuse ``@lock_view`` without a name, and an option that it does not have."""
    if callable(lock_name) or (lock_name is None and get_lock_name is None):
        raise ConfigurationError('name the lock: @lock_view("article:{pk}")')
    if "on_busy" in options:
        raise ConfigurationError("on_busy is an option of @redis_lock: lock_view takes status=…")


def like(view: Any, function: Any) -> Any:
    """Give a wrapper the signature with which it is called, for the name of the lock."""
    wrapper: Any = wraps(view)(function)
    wrapper.__signature__ = inspect.signature(called(view))
    return wrapper


def called(view: Any) -> Any:
    """Return the method of a view that ``method_decorator`` passes as a partial, or the view."""
    found: Any = inspect.unwrap(view, stop=lambda one: isinstance(one, partial))
    # A partial with arguments is a view of the program: they are also values for its lock's name.
    is_plain = isinstance(found, partial) and not found.args and not found.keywords
    return found.func if is_plain else found


def is_async(view: Any) -> bool:
    """Whether a view returns a coroutine; ``dispatch`` of an async class does, but is not async."""
    method = called(view)
    is_dispatch = getattr(method, "__name__", "") == "dispatch"
    instance = getattr(method, "__self__", None) if is_dispatch else None
    return iscoroutinefunction(view) or bool(getattr(instance, "view_is_async", False))


def excluded_databases(view: Any) -> set[str]:
    return set(getattr(view, "_non_atomic_requests", ()))


def exclude_databases(view: Any, aliases: set[str]) -> Any:
    """Have Django begin no transaction for a view in these databases, and in others as usual."""
    vars(view).pop("_non_atomic_requests", None)  # the set of the view that it wraps
    for alias in aliases:
        transaction.non_atomic_requests(using=alias)(view)
    return view


def atomic_databases(view: Any) -> list[str]:
    """Return the databases for whose transaction Django would wrap the view."""
    excluded = excluded_databases(view)
    return [
        alias
        for alias, found in connections.settings.items()
        if found["ATOMIC_REQUESTS"] and alias not in excluded
    ]
