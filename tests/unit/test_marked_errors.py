"""Marks on exceptions: of requests that were not sent, of handlers, of half-open connections."""

import asyncio
import inspect
from dataclasses import dataclass

import pytest
import redis
import redis.exceptions as client

from redis_lock_decorators._flow import timeouts
from redis_lock_decorators._io import client_errors, hook_errors
from redis_lock_decorators._io.client_errors import is_outcome, mark_unsent, was_sent
from redis_lock_decorators._io.unconfigured import may_leave_unconfigured


def test_request_counts_as_sent_unless_marked() -> None:
    error = client.ConnectionError("refused")
    assert was_sent(error)

    mark_unsent(error)

    assert not was_sent(error)


def converted(error: BaseException) -> Exception:
    """An error of the client's library in which a wrapped client ended another."""
    made = client.ConnectionError("the store is unavailable")
    made.__cause__ = error
    return made


def caught_by_program(error: BaseException) -> Exception:
    """An error of a library that a wrapped client made of one that it caught from the library."""
    try:
        try:
            raise error
        except BaseException as cause:
            raise client.ConnectionError("the store is unavailable") from cause
    except client.ConnectionError as found:
        return found


def of_library(error: BaseException) -> Exception:
    """The same, made by the library itself."""
    names = {"__name__": "redis.connection", "error": error, "client": client}
    exec(inspect.getsource(caught_by_program), names)  # noqa: S102 - frames like the library's
    found: Exception = names["caught_by_program"](error)  # type: ignore[operator]
    return found


OF_OTHER_LIBRARY = type("ConnectionError", (Exception,), {"__module__": "valkey.exceptions"})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("vault"), True),
        (asyncio.CancelledError(), True),
        (OF_OTHER_LIBRARY("vault"), True),
        (converted(ValueError("vault")), True),
        (converted(converted(ValueError("vault"))), True),
        (client.ConnectionError("refused"), False),
        (client.ResponseError("ERR x"), False),
        (converted(ConnectionRefusedError()), False),
        (converted(EOFError()), False),
        (converted(asyncio.CancelledError()), False),
        (caught_by_program(OSError("vault")), True),
        (caught_by_program(asyncio.CancelledError()), True),
        (caught_by_program(client.ConnectionError("refused")), True),
        (of_library(OSError("refused")), False),
        (of_library(asyncio.CancelledError()), False),
    ],
    ids=repr,
)
def test_connection_may_be_open_but_not_set_up(error: BaseException, expected: bool) -> None:
    assert may_leave_unconfigured(client.RedisError(), error) == expected


class TimeIsUp(BaseException):
    """An exception of which a program raises one object again and again."""


class Stopped(Exception):
    """The same of a signal handler."""


@pytest.mark.parametrize("kind", [TimeIsUp, Stopped])
def test_exception_of_the_program_is_not_marked_as_it_may_be_raised_again(
    kind: type[BaseException],
) -> None:
    error = client_errors.mark_caught(kind())

    assert client_errors.was_sent(error)
    assert not vars(error)


@pytest.mark.parametrize(
    "kind",
    [redis.ConnectionError, ConnectionRefusedError, asyncio.CancelledError, KeyboardInterrupt],
)
def test_error_before_a_request_was_sent_is_marked(kind: type[BaseException]) -> None:
    error = kind(111, "refused") if issubclass(kind, OSError) else kind()

    assert not client_errors.was_sent(client_errors.mark_caught(error))


@dataclass(frozen=True)
class VaultDown(Exception):
    """An exception of a program that refuses to be changed."""

    reason: str = "sealed"


def test_exception_that_refuses_to_be_changed_keeps_its_class() -> None:
    cause = ValueError()

    error = hook_errors.of_hook(VaultDown())

    assert is_outcome(error)
    assert client_errors.caused(error, cause).__cause__ is cause
    assert not client_errors.was_sent(client_errors.mark_unsent(error))
    assert timeouts.with_send_time(error, 1.0) is error
