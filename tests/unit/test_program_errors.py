"""Exceptions that the program raises during a request are not mistaken for those of the client."""

import asyncio
import concurrent.futures
from typing import Any

import pytest
import redis
import redis.exceptions as client
from support.exceptions import exception_of

from redis_lock_decorators._io.client_errors import is_outcome, is_unknown, meant
from redis_lock_decorators._io.error_replies import is_reply, lacks
from redis_lock_decorators.errors import LockError


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("a signal handler's"),
        ConnectionError("a signal handler's"),
        ConnectionResetError("a signal handler's"),
        asyncio.TimeoutError(),
        concurrent.futures.TimeoutError(),
        exception_of("TimeoutError", module="timeout_decorator.timeout_decorator"),
        exception_of("TimeoutError", AssertionError, module="wrapt_timeout_decorator"),
        exception_of("TimeoutError", TimeoutError, module="myapp.limits"),
        exception_of("ConnectionError", OSError, module="requests.exceptions"),
        exception_of("ClusterError", module="myapp.cluster"),
        exception_of("Deadline", module="myapp"),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_error_of_a_signal_handler_is_not_the_clients(error: Exception) -> None:
    assert not is_unknown(error)
    assert not is_reply(error)


@pytest.mark.parametrize(
    ("error", "is_ours"),
    [
        (client.ConnectionError("gone"), True),
        (client.ResponseError("ERR wrong"), True),
        (LockError("wrong"), True),
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (TimeoutError("timed out"), True),
        (TimeoutError("a signal handler's"), False),
        (TimeoutError(), False),
        (exception_of("Deadline", module="myapp"), False),
        (KeyboardInterrupt(), False),
        (asyncio.CancelledError(), False),
    ],
    ids=repr,
)
def test_exception_from_outside_is_no_outcome_of_a_request(
    error: BaseException, is_ours: bool
) -> None:
    assert is_outcome(error) == is_ours


@pytest.mark.parametrize(
    "sentence", ["BUSY", "LOADING the report", "READONLY", "NOSCRIPT", "unknown command"]
)
def test_text_of_a_programs_error_is_ignored(sentence: str) -> None:
    assert not is_unknown(ValueError(sentence))
    assert lacks(ValueError(sentence)) == ""


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyError("wrong"), LockError("wrong")])
def test_error_of_a_program_is_definite(error: Exception) -> None:
    assert not is_unknown(error)


def test_subclass_of_a_client_error_is_the_clients() -> None:
    assert is_unknown(exception_of("Gone", client.ConnectionError, module="myapp"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_interrupt_is_no_reply(error: BaseException) -> None:
    assert not is_reply(error)


class BrokenHook:
    """A credential provider of the program, with a bug."""

    def get_credentials(self) -> Any:
        return None.token  # type: ignore[attr-defined]


def test_attribute_error_of_a_hook_is_not_the_clients() -> None:
    with pytest.raises(AttributeError) as caught:
        BrokenHook().get_credentials()

    assert not is_outcome(caught.value)
    assert not is_unknown(caught.value)
    assert meant(redis.Redis(), caught.value) is caught.value
    assert not is_outcome(AttributeError("'NoneType' object has no attribute 'x'"))
