"""Exceptions of the program's code that a client library calls are failures of a request."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import functools
import math
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast
from unittest import mock

import pytest
import redis
import redis.asyncio
from support.interruptions import Interruption, Limited, interrupt_every_line

from redis_lock_decorators import LockLostError, LockTimeoutError
from redis_lock_decorators._flow import requests
from redis_lock_decorators._flow.requests import ReplyMismatch
from redis_lock_decorators._io.base_port import BasePort
from redis_lock_decorators._io.client_errors import (
    is_outcome,
    is_unknown,
    meant,
    own_copy,
)
from redis_lock_decorators._io.error_replies import is_reply, lacks
from redis_lock_decorators._io.transport.asyncio_client import ClientTransport
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._io.transport.private_connection import opened


class VaultError(Exception):
    """An error of a program's credential provider."""


def in_module(module: str, call: Callable[[], object]) -> Exception:
    """The exception of a call that a function of a module makes."""
    names: dict[str, Any] = {"__name__": module}
    exec("def connect(call):\n    call()", names)  # noqa: S102 - a stack like the library's
    with pytest.raises(VaultError) as caught:
        names["connect"](call)
    return caught.value


def hook() -> None:
    raise VaultError("it is sealed")


def interrupted_hook() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A signal handler that raises an exception of the same class."""

    def interrupt(number: int, frame: object) -> None:
        hook()

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "module", ["redis.connection", "redis.asyncio.connection", "valkey.client"]
)
def test_error_of_a_hook_is_an_outcome(module: str) -> None:
    error = in_module(module, hook)

    assert is_outcome(error)
    assert is_unknown(error)  # the hook may succeed a moment later


def test_error_of_code_that_is_no_hook_is_none() -> None:
    assert not is_outcome(in_module("myapp", hook))
    assert not is_unknown(in_module("myapp", hook))


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    "call", [interrupted_hook, partial(signal.raise_signal, signal.SIGINT)], ids=["hook", "library"]
)
def test_error_of_a_signal_handler_is_none(call: Callable[[], object]) -> None:
    error = in_module("redis.connection", call)

    assert not is_outcome(error)
    assert not is_unknown(error)


def test_copy_for_another_request_is_an_outcome_too() -> None:
    error = meant(redis.Redis(), in_module("redis.connection", hook))

    assert is_outcome(copy.copy(error))


def test_refusal_by_the_server_that_a_hook_asked_is_definite() -> None:
    def select() -> None:
        raise redis.ResponseError("ERR DB index is out of range")

    names: dict[str, Any] = {"__name__": "redis.connection"}
    exec("def connect(call):\n    call()", names)  # noqa: S102 - a stack like the library's
    with pytest.raises(redis.ResponseError) as caught:
        names["connect"](select)

    assert not is_unknown(caught.value)


# Signal handlers of all kinds


class Job:
    def late(self, *_: object) -> None:
        hook()

    def __call__(self, *_: object) -> None:
        hook()


def any_arguments(*_: object) -> None:
    hook()


def forgetful(*arguments: object) -> None:
    """Neither registered nor known by its arguments when it raises."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del arguments
    hook()


@functools.wraps(hook)
def decorated(*args: object) -> None:
    hook()


HANDLERS: dict[str, Any] = {
    "function": any_arguments,
    "lambda": lambda *_: hook(),
    "method": Job().late,
    "object": Job(),
    "partial": partial(any_arguments, 1),
    "decorated": decorated,
    "forgetful": forgetful,
}


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("place", ["library", "hook"])
def test_error_of_any_signal_handler_is_none(kind: str, place: str) -> None:
    if (kind, place) == ("forgetful", "hook"):
        pytest.skip("nothing tells it from a function that the hook calls")
    at_once = partial(signal.raise_signal, signal.SIGINT)
    before = signal.signal(signal.SIGINT, HANDLERS[kind])
    try:
        error = in_module("redis.connection", at_once if place == "library" else interrupted_hook)
    finally:
        signal.signal(signal.SIGINT, before)

    assert not is_outcome(error)


RAISED = [
    LockLostError("another"),
    LockTimeoutError("another"),
    ReplyMismatch("of another lock"),
    redis.ConnectionError("Connection refused"),
    redis.ResponseError("LOADING of another server"),
    redis.exceptions.NoScriptError("of another server"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("module", ["redis.connection", "redis_lock_decorators.lease"])
def test_error_of_a_request_by_a_signal_handler_is_none(error: Exception, module: str) -> None:
    def handle(*_: object) -> None:
        raise error.with_traceback(None)

    names: dict[str, Any] = {"__name__": module, "signal": signal}
    exec("def read():\n    signal.raise_signal(signal.SIGINT)", names)  # noqa: S102 - as above
    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(type(error)) as caught:
            names["read"]()
    finally:
        signal.signal(signal.SIGINT, before)

    for found in (caught.value, own_copy(caught.value)):
        assert not is_outcome(found)
        assert not is_unknown(found)
        assert not requests.is_unknown(cast("Any", BasePort), found)
        assert not is_reply(found)
        assert not lacks(found)


# Hooks of a library's connections


class Provider(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str]:
        raise VaultError("it is sealed")


class OpeningConnection(redis.Connection):
    def _connect(self) -> Any:
        raise VaultError("no tunnel")


class UnopenedConnection(redis.Connection):
    """It fails at the hooks, as it sends nothing."""

    def _connect(self) -> Any:
        here, there = socket.socketpair()
        there.close()
        return here


def failing(_: object) -> None:
    hook()


@contextlib.contextmanager
def timed() -> Iterator[None]:
    yield


@timed()
def managed(_: object) -> None:
    hook()


class Hook:
    def __call__(self, _: object) -> None:
        hook()


def mocked() -> Any:
    return mock.Mock(**{"get_credentials.side_effect": VaultError("it is sealed")})


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (UnopenedConnection, {"credential_provider": Provider()}),
        (UnopenedConnection, {"credential_provider": mocked()}),
        (UnopenedConnection, {"redis_connect_func": failing}),
        (UnopenedConnection, {"redis_connect_func": partial(any_arguments, 1)}),
        (UnopenedConnection, {"redis_connect_func": Hook()}),
        (UnopenedConnection, {"redis_connect_func": managed}),
        (OpeningConnection, {}),
    ],
)
def test_error_of_any_hook_is_an_outcome(kind: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(VaultError) as caught:
        kind(**parameters).connect()

    assert is_outcome(caught.value)


class AsyncConnection(redis.asyncio.Connection):
    async def _connect(self) -> None:
        self._writer = mock.AsyncMock(close=mock.Mock())
        self._reader = mock.Mock()


async def failing_async(_: object) -> None:
    hook()


@pytest.mark.parametrize(
    "parameters",
    [
        {"credential_provider": Provider()},
        {"redis_connect_func": failing},
        {"redis_connect_func": failing_async},
    ],
)
def test_error_of_any_hook_of_an_event_loop_is_an_outcome(parameters: dict[str, Any]) -> None:
    async def connect() -> None:
        connection = AsyncConnection(**parameters)
        try:
            await connection.connect()
        finally:
            await connection.disconnect(nowait=True)

    with pytest.raises(VaultError) as caught:
        asyncio.run(connect())

    assert is_outcome(caught.value)


# Time limits that are errors of the operating system


def limit(*_: object) -> None:
    raise TimeoutError(errno.ETIME, "the job timed out")


def limited(call: Callable[[], object]) -> BaseException:
    """The exception of a call, while a time limit's signal handler is registered."""
    before = signal.signal(signal.SIGINT, limit)
    try:
        call()
    except Exception as error:
        return error
    finally:
        signal.signal(signal.SIGINT, before)
    raise AssertionError("it raised nothing")


def library_module(is_broken: bool) -> Any:
    """A module of a library that turns errors of its socket into its own."""
    names: dict[str, Any] = {"__name__": "redis.connection", "redis": redis}
    names["receive"] = broken if is_broken else at_signal
    exec(CONVERTING, names)  # noqa: S102 - a stack like the library's
    return names["read"]


CONVERTING = """
def read():
    try:
        receive()
    except OSError:
        raise redis.TimeoutError("Timeout reading from socket")
"""


def at_signal() -> None:
    signal.raise_signal(signal.SIGINT)


def broken() -> None:
    raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def test_time_limit_is_not_of_the_socket() -> None:
    assert not is_outcome(limited(at_signal))
    assert is_outcome(limited(broken))


def test_time_limit_that_a_library_has_converted_is_found() -> None:
    error = limited(library_module(is_broken=False))
    assert isinstance(error, redis.TimeoutError)

    found = meant(redis.Redis(), error)

    assert found is error.__context__
    assert not is_outcome(found)


def test_error_while_a_time_limit_is_handled_is_the_librarys() -> None:
    def work() -> None:
        try:
            at_signal()
        except TimeoutError:
            library_module(is_broken=True)()

    error = limited(work)

    assert isinstance(error, redis.TimeoutError)
    assert meant(redis.Redis(), error) is error


def test_time_limit_while_a_connection_is_opened_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: at_signal())
    pool = redis.ConnectionPool(host="localhost")

    error = limited(lambda: opened(pool.connection_class, pool.connection_kwargs, math.inf))

    assert type(error) is TimeoutError
    assert error.errno == errno.ETIME
    assert not is_outcome(error)


def test_exception_while_an_error_is_examined_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interruption, "kind", Limited)
    handlers = {signal.SIGINT: Job().late}
    monkeypatch.setattr(signal, "getsignal", handlers.get)
    error = limited(broken)

    def work(interruption: Interruption) -> None:
        with interruption:
            assert is_outcome(error)

    assert interrupt_every_line(work) > 20


class Open(Exception):
    """A program's circuit breaker is open."""


def breaking(kind: type[Any]) -> Any:
    """A client whose methods the program has replaced."""

    class Breaker(kind):  # type: ignore[misc]
        def execute_command(self, *command: Any, **options: Any) -> Any:
            raise Open

    return Breaker()


def test_error_of_a_replaced_method_is_a_failure_of_the_request() -> None:
    (blocking,) = replies_of(breaking(redis.Redis), [("GET", "a")])
    transport = ClientTransport(breaking(redis.asyncio.Redis))
    (of_task,) = asyncio.run(transport.send_batch([("GET", "a")], math.inf))

    assert [type(blocking), type(of_task)] == [Open, Open]
    assert is_outcome(blocking)
    assert is_outcome(of_task)


def test_error_of_a_signal_handler_in_a_replaced_method_is_none() -> None:
    def handler(*_: object) -> None:
        raise Open

    class Traced(redis.Redis):
        def execute_command(self, *command: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGINT)

    plain = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(Open) as caught:
            replies_of(Traced(), [("GET", "a")])
    finally:
        signal.signal(signal.SIGINT, plain)

    assert not is_outcome(caught.value)
