"""Clients made as environment variables say, if the program gives none."""

from __future__ import annotations

import importlib
import os
from typing import Any

from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.client_sources import ConnectionFactory
from redis_lock_decorators._rules.fitting import fits
from redis_lock_decorators.errors import ConfigurationError

DEFAULT_URL = "redis://localhost:6379/0"


def from_environment() -> Any:
    """The blocking client of REDIS_LOCK_CONNECTION, REDIS_URL, or localhost.

    Raises:
        ConfigurationError: the named factory cannot be found, or the URL cannot be read.
    """
    return _from_environment("redis")


def async_from_environment() -> Any:
    """The asyncio client of REDIS_LOCK_CONNECTION, REDIS_URL, or localhost.

    Raises:
        ConfigurationError: the named factory cannot be found, or the URL cannot be read.
    """
    return _from_environment("redis.asyncio")


def _from_environment(library: str) -> Any:
    named = os.environ.get("REDIS_LOCK_CONNECTION")
    if named:
        factory = _imported(named)
        if not fits(factory, ()):
            raise ConfigurationError(
                f"REDIS_LOCK_CONNECTION={named!r} needs arguments, but is called without any"
            )
        return _checked(factory(), named, library == "redis.asyncio")
    try:
        redis, url = importlib.import_module(library), os.environ.get("REDIS_URL") or DEFAULT_URL
        if "://" not in url:  # redis.asyncio would connect to localhost
            raise ValueError
        client = redis.Redis.from_url(url)
        if "?" in url:  # otherwise an unknown option would fail when a connection is opened
            client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        return client
    except TypeError:
        raise ConfigurationError(
            "REDIS_URL has an option after its '?' that the client does not know "
            "(it is not shown: it may hold a password)"
        ) from None
    except ValueError:
        # Without the cause and the address, which may contain a password.
        raise ConfigurationError(
            "REDIS_URL is no Redis address such as redis://localhost:6379/0 "
            "(it is not shown: it may hold a password)"
        ) from None


def _checked(client: Any, named: str, awaited: bool) -> Any:
    """Check and return the client that the function in the environment has made."""
    try:
        refuse_unfit_client(client, awaited)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r}: {error.args[0]}; that function makes clients for "
            "threads or for asyncio: set REDIS_URL instead, which serves both, or configure(…) the "
            "other client"
        ) from None
    return client


def _imported(named: str) -> ConnectionFactory:
    if "://" in named:
        raise ConfigurationError(
            "REDIS_LOCK_CONNECTION is an address (it is not shown: it may hold a password): put it "
            "into REDIS_URL; REDIS_LOCK_CONNECTION names a function as package.module:function"
        )
    module_name, _, attribute = named.partition(":")
    if not (module_name and attribute):
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} names no function: write it as "
            "package.module:function"
        )
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} names no function: {error}; "
            "write it as package.module:function"
        ) from error
    if not callable(factory):
        raise ConfigurationError(
            f"REDIS_LOCK_CONNECTION={named!r} is a {type(factory).__name__}, which cannot be "
            "called: name a function that returns a client"
        )
    found: ConnectionFactory = factory
    return found
