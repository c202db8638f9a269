"""``lock_view``: one request at a time in a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils.decorators import method_decorator

from redis_lock_decorators.contrib._arguments import checked_status
from redis_lock_decorators.contrib._busy import LOCKED
from redis_lock_decorators.contrib.django.commits import (
    confirm,
    held_until_commit,
    open_transactions,
)
from redis_lock_decorators.contrib.django.connection import require_application
from redis_lock_decorators.contrib.django.responses import busy, refuse_stream
from redis_lock_decorators.contrib.django.view_kinds import (
    atomic_databases,
    exclude_databases,
    excluded_databases,
    is_async,
    like,
    refuse_misuse,
)
from redis_lock_decorators.errors import LockTimeoutError
from redis_lock_decorators.lease import current_lease
from redis_lock_decorators.locks import redis_lock


def lock_view(
    lock_name: str | Sequence[str] | None = None,
    get_lock_name: Callable[..., str | Sequence[str]] | None = None,
    *,
    status: int = LOCKED,
    until_commit: bool = True,
    **options: Any,
) -> Callable[[Any], Any]:
    """Run one request at a time in a view: a function, async or not, or a class.

    A request whose lock is not free in time gets a response with ``status`` and Retry-After. Of a
    class, ``dispatch`` is decorated, also by ``method_decorator(lock_view(…), name="dispatch")``.

    Args:
        lock_name: a template over the view's arguments, such as "article:{pk}", or several.
        get_lock_name: returns the name for the view's arguments.
        status: 423 (Locked), or 409 (Conflict).
        until_commit: release after the commit: that of ATOMIC_REQUESTS, whose transaction then
            begins inside the lock, or of a transaction that is open around the view.
        options: as for ``RedisLock``, durations in seconds.

    Raises:
        LockNameError, ConfigurationError: as by ``redis_lock``.
    """
    refuse_misuse(lock_name, get_lock_name, options)
    status = checked_status("status", status)
    lock = redis_lock(lock_name, get_lock_name, **options)

    def decorate(view: Any) -> Any:
        if isinstance(view, type):
            return method_decorator(decorate, name="dispatch")(view)
        if is_async(view):
            return _async(view, lock, status)
        return _sync(view, lock, status, until_commit)

    return decorate


def _sync(view: Any, lock: Any, status: int, until_commit: bool) -> Any:
    aliases = atomic_databases(view) if until_commit else []

    def committed(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as transactions:
            for alias in aliases:
                transactions.enter_context(transaction.atomic(using=alias))
            response = view(*args, **kwargs)
            is_undone = any(transaction.get_rollback(using=alias) for alias in aliases)
            if aliases and not is_undone and (lease := current_lease()):
                confirm(lease)
        if is_undone:
            raise _RolledBack(response)
        return response

    locked = lock(like(view, committed))

    def respond(*args: Any, **kwargs: Any) -> Any:
        require_application()
        outer = open_transactions() if until_commit else []
        try:
            if not outer:
                return _response(partial(locked, *args, **kwargs))
            block = ExitStack()
            block.enter_context(held_until_commit(locked.lock_for(*args, **kwargs), outer))
        except LockTimeoutError as error:
            return busy(status, error)
        with block:
            return refuse_stream(_response(partial(committed, *args, **kwargs)))

    return exclude_databases(wraps(view)(respond), {*aliases, *excluded_databases(view)})


class _RolledBack(Exception):
    """The transaction of a view was rolled back, as its work has failed: without ``min_hold``."""

    def __init__(self, response: Any) -> None:
        super().__init__(response)
        self.response = response


def _response(respond: Callable[[], Any]) -> Any:
    try:
        return respond()
    except _RolledBack as done:
        return refuse_stream(done.response)


def _async(view: Any, lock: Any, status: int) -> Any:
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await view(*args, **kwargs)

    locked = lock(like(view, awaited))

    @wraps(view)
    async def respond(*args: Any, **kwargs: Any) -> Any:
        require_application()
        if atomic_databases(view):  # as Django
            raise ImproperlyConfigured(
                "ATOMIC_REQUESTS: put non_atomic_requests on async views, below lock_view"
            )
        try:
            return await locked(*args, **kwargs)
        except LockTimeoutError as error:
            return busy(status, error)

    return respond
