"""The setting ``REDIS_LOCK``: where the Redis of the locks is, and their defaults.

It is a dictionary with

- ``URL``: the server, or
- ``CACHE``: the alias of a cache of Django's ``RedisCache`` or of django-redis, or
- ``CLIENT``: the path of a function that returns a client; ``ASYNC_CLIENT`` that of one for asyncio
- ``OPTIONS``: the defaults of the locks, as for ``configure``; durations in seconds.

Without the first three the environment determines the server, as in other programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import redis
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from redis_lock_decorators._io.environment import async_from_environment, from_environment
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.contrib._arguments import checked_url
from redis_lock_decorators.contrib.django.clients import (
    async_client_of_cache,
    async_client_of_url,
    client_of_cache,
)
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.locks import configure

SETTING = "REDIS_LOCK"
APPLICATION = "redis_lock_decorators.contrib.django"
KEYS = {"URL", "CACHE", "CLIENT", "ASYNC_CLIENT", "OPTIONS"}

Factory = Callable[[], Any]
#: The options and connection functions of the setting that was applied last.
_configured: set[str] = set()
#: The defaults of the connection functions.
_SERVERS: dict[str, Factory] = {
    "get_redis_connection": from_environment,
    "get_async_redis_connection": async_from_environment,
}


def configure_locks() -> None:
    """Configure the locks of the process as the settings say.

    What a former setting gave and this one does not gets its default again: a test may override the
    setting.

    Raises:
        ImproperlyConfigured: the setting has an unknown key, or names two servers.
        ConfigurationError: an option is unknown or invalid.
    """
    servers = zip(_SERVERS, factories(), strict=True)
    given: dict[str, Any] = {name: factory for name, factory in servers if factory is not None}
    given.update(read().get("OPTIONS", {}))
    before: dict[str, Any] = {
        name: _SERVERS[name] if name in _SERVERS else getattr(Options(), name)
        for name in _configured - given.keys()
    }
    configure(**before, **given)
    _configured.clear()
    _configured.update(given)


def read() -> dict[str, Any]:
    """Return the setting.

    Raises:
        ImproperlyConfigured: it has an unknown key, a wrong value, or two servers.
    """
    given: Any = getattr(settings, SETTING, {})
    _refuse_other(SETTING, given, dict)
    if unknown := given.keys() - KEYS:
        raise ImproperlyConfigured(f"{SETTING} has unknown keys {unknown}: give {KEYS}")
    if len(given.keys() & {"URL", "CACHE", "CLIENT"}) > 1:
        raise ImproperlyConfigured(f"{SETTING} names two servers: give URL, CACHE or CLIENT")
    for key, value in given.items():
        _refuse_other(f"{SETTING}[{key!r}]", value, dict if key == "OPTIONS" else str)
    if "URL" in given:
        try:
            checked_url(f"{SETTING}['URL']", given["URL"])
        except ConfigurationError as error:
            raise ImproperlyConfigured(str(error)) from None
    checked: dict[str, Any] = given
    return checked


def _refuse_other(name: str, value: Any, kind: type[dict[Any, Any]] | type[str]) -> None:
    """Refuse a value of another type; it is not shown, as it may hold a password."""
    if not isinstance(value, kind):
        expected = "a text" if kind is str else "a dictionary"
        raise ImproperlyConfigured(f"{name} is of type {type(value).__name__}: give {expected}")


@cache
def require_application() -> None:
    """Refuse a setting that has no effect: locks would use another server than it says."""
    if hasattr(settings, SETTING) and not apps.is_installed(APPLICATION):
        raise ImproperlyConfigured(f"{SETTING} has no effect: add {APPLICATION} to INSTALLED_APPS")


def factories() -> tuple[Factory | None, Factory | None]:
    """Return the functions that return the blocking client and the asyncio client, if given."""
    given = read()
    blocking = awaited = None
    if "URL" in given:
        blocking = partial(redis.Redis.from_url, given["URL"])
        awaited = partial(async_client_of_url, given["URL"])
    elif "CACHE" in given:
        blocking = partial(client_of_cache, given["CACHE"])
        awaited = partial(async_client_of_cache, given["CACHE"])
    elif "CLIENT" in given:
        blocking = import_string(given["CLIENT"])
    if "ASYNC_CLIENT" in given:
        awaited = import_string(given["ASYNC_CLIENT"])
    return blocking, awaited
