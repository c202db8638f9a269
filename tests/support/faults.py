"""Faults that may happen to one request to a simulated server."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as TimedOut

from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._io import error_replies

if TYPE_CHECKING:
    from support.simulation import SimulatedPort


@dataclasses.dataclass
class Request:
    """A command in flight; ``end`` is when its sender stops waiting for the reply."""

    port: SimulatedPort
    command: tuple[Any, ...]
    end: float

    def execute(self) -> Any:
        """Let the server run it; returns its reply, also if that is an error."""
        try:
            return self.port.server.run(self.command)
        except Exception as error:
            if error_replies.is_reply(error):
                return error
            raise

    def travel(self, share: float = 1.0) -> None:
        """Advance the clock by a share of the latency."""
        self.port.clock.advance(self.port.latency * share)

    def cut(self, sentence: str) -> Disconnected:
        """The error of a broken connection, whose unread replies are lost."""
        self.port.unread.clear()
        return Disconnected(sentence)


#: What happens to one request: returns its reply or raises.
Fate = Callable[[Request], Any]


def delivered(request: Request) -> Any:
    """It runs after half the latency, the reply arrives after the other half, if in time."""
    return slow(0.0)(request)


def slow(seconds: float) -> Fate:
    """It reaches the server ``seconds`` later."""

    def fate(request: Request) -> Any:
        clock, half = request.port.clock, request.port.latency / 2
        if clock.now + seconds + 2 * half > request.end:
            clock.at(clock.now + seconds + half, request.execute)
            return swallowed(request)
        clock.advance(seconds + half)
        reply = request.execute()
        clock.advance(half)
        return request.port.received(reply)

    return fate


def unsent(request: Request) -> Any:
    """It is queued behind other requests until its sender stops waiting."""
    clock = request.port.clock
    clock.advance(max(0.0, request.end - clock.now))
    raise NeverSent("others were before it")


def refused(request: Request) -> Any:
    """No connection could be made, so nothing was sent."""
    request.travel()
    error: Any = request.cut("the connection was refused")
    error.unsent = True
    raise error


def request_lost(request: Request) -> Any:
    """The connection breaks before the server has read the request."""
    request.travel()
    raise request.cut("the request was lost")


def reply_lost(request: Request) -> Any:
    """The server runs it, then the connection breaks."""
    request.travel(0.5)
    request.execute()
    request.travel(0.5)
    raise request.cut("the reply was lost")


def timed_out(request: Request) -> Any:
    """The server runs it after half the latency, but no reply arrives."""
    port = request.port
    port.clock.at(port.clock.now + port.latency / 2, request.execute)
    return swallowed(request)


def swallowed(request: Request) -> Any:
    """It is neither run nor answered, as by a black hole."""
    clock = request.port.clock
    assert request.end < math.inf, "the flow would wait for a reply without limit"
    clock.advance(max(0.0, request.end - clock.now))
    request.port.unread.clear()
    raise TimedOut("no reply in time")


def delayed(seconds: float) -> Fate:
    """The connection breaks immediately, but the server runs the request ``seconds`` later."""

    def fate(request: Request) -> Any:
        clock = request.port.clock
        clock.at(clock.now + seconds, request.execute)
        return request_lost(request)

    return fate


def raising(error: BaseException) -> Fate:
    """The client raises ``error``, and the server has not run the request."""

    def fate(request: Request) -> Any:
        request.travel()
        raise error

    return fate


class Connecting:
    """``error`` is raised while a connection is opened: no byte of the request is sent."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, request: Request) -> Any:
        request.travel()
        raise self._error


def is_before_sending(fate: Fate) -> bool:
    """Whether a fate ends a request before its first byte is sent."""
    return isinstance(fate, Connecting) or fate in (refused, unsent)


def paused(seconds: float) -> Fate:
    """It is run, then the process is paused before it reads the reply."""

    def fate(request: Request) -> Any:
        request.travel(0.5)
        reply = request.execute()
        request.port.clock.advance(seconds)
        return request.port.received(reply)

    return fate


def interrupted(error: BaseException, *, reply_left: bool = False) -> Fate:
    """It is run, then a signal handler raises; ``reply_left``: its reply is not read."""

    def fate(request: Request) -> Any:
        reply = request.execute()
        if reply_left:
            request.port.unread.append(reply)
        raise error

    return fate


def mismatched(*replies: Any) -> Fate:
    """Replies to other commands are still unread on the connection."""

    def fate(request: Request) -> Any:
        request.port.unread.extend(replies)
        return delivered(request)

    return fate


def resent(request: Request) -> Any:
    """The reply is lost, and the client itself sends the command again."""
    request.execute()
    return delivered(request)
