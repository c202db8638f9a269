"""Exceptions of the program's own code that a client library calls, such as a credential provider.

They are failures of a request, as those of the library are. A signal handler may raise an exception
of the same class at the same place; that is no failure of a request and must leave the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import FrameType
from typing import TypeVar

from redis_lock_decorators._io.frame_calls import calls, gets_interrupted, registered_codes
from redis_lock_decorators._io.plain_pools import LIBRARIES
from redis_lock_decorators._rules.marks import marked

E = TypeVar("E", bound=BaseException)

#: The packages of the client libraries, and of a cluster client that is not imitated.
CLIENTS = LIBRARIES | {"rediscluster"}
#: The packages by which these use sockets: an exception from outside may come in them too.
_TRANSPORTS = frozenset(
    {
        *("asyncio", "async_timeout", "contextlib", "encodings", "eventlet", "gevent", "greenlet"),
        *("hiredis", "libvalkey", "queue", "select", "selectors", "socket", "ssl", "threading"),
        *("uvloop", "redis_lock_decorators"),
    }
)
#: The packages of the frames in which a library works.
_OF_LIBRARIES = CLIENTS | _TRANSPORTS
#: The modules that call methods of clients.
_CALLERS = {
    "redis_lock_decorators._io.transport.client_calls",
    "redis_lock_decorators._io.transport.asyncio_client",
}
#: How many times a library may turn one exception into another.
_CONVERSIONS = 10


def is_of_hook(error: BaseException) -> bool:
    """Whether the program's code raised this exception when the client library called it.

    An exception that is set for a thread by the C API while it runs such code looks the same.
    """
    if not isinstance(error, Exception):
        return False
    if getattr(error, "of_hook", False):
        return True
    return (_passes_hook(error) or _is_of_method(error)) and not is_of_handler(error)


def is_of_handler(error: BaseException) -> bool:
    """Whether the traceback leads through a signal handler, as far as that is recognisable."""
    if getattr(error, "of_handler", False):
        return True
    frames = list(_frames(error))
    if _OF_LIBRARIES.issuperset(map(_package_of, frames)):  # no code of the program
        return False
    registered = registered_codes()
    return any(
        frame.f_code in registered or gets_interrupted(frame, at) for at, frame in pairwise(frames)
    )


def mark_handler(error: E) -> E:
    """Mark an error as a handler's if it is, as copies of it have no traceback; and return it."""
    if is_of_handler(error):
        marked(error, "of_handler")
    return error


def is_raised_by_library(error: BaseException) -> bool:
    """Whether a client library raised this error, as far as it has a traceback."""
    *_, last = (None, *_frames(error))
    return last is None or _package_of(last) in _OF_LIBRARIES


def is_caught_by_library(error: BaseException) -> bool:
    """Whether a client library caught this error, as far as it has a traceback."""
    first = next(_frames(error), None)
    return first is None or _package_of(first) in _OF_LIBRARIES


def unconverted(error: E) -> E | Exception:
    """The exception of a signal handler that a library has turned into this error, or the error.

    Libraries take each OSError for one of the socket, also a TimeoutError that limits a job.
    """
    found: BaseException = error
    for _ in range(_CONVERSIONS):
        source = found.__cause__ or found.__context__
        # Not one that the program was handling when it used the library.
        if source is None or next(map(_package_of, _frames(source)), "") not in CLIENTS:
            break
        if isinstance(source, Exception) and is_of_handler(source):
            return source
        found = source
    return error


def mark_hook(error: E) -> E:
    """Mark an error as a hook's if it is, as copies of it have no traceback; and return it."""
    if is_of_hook(error):
        of_hook(error)
    return error


def of_hook(error: E) -> E:
    """Mark an error as a hook's, and return it."""
    return marked(error, "of_hook")


def _passes_hook(error: Exception) -> bool:
    """Whether the traceback leads from the library into a hook.

    Any other exception is from outside, also if the function that the library called is unknown.
    """
    frames = list(_frames(error))
    of_client = [place for place, frame in enumerate(frames) if _package_of(frame) in CLIENTS]
    rest = frames[of_client[0] :] if of_client else []
    is_in_client, has_hook = True, False
    for caller, frame in pairwise(rest):
        package = _package_of(frame)
        if package in _TRANSPORTS:
            continue
        if package not in CLIENTS and is_in_client:
            if not calls(caller, frame):
                return False
            has_hook = True
        is_in_client = package in CLIENTS
    return has_hook


def _is_of_method(error: Exception) -> bool:
    """Whether a method of the client raised it that the program has replaced, as by a subclass.

    Not if the library raised it on behalf of that method: there an exception from outside is
    likelier.
    """
    frames = list(_frames(error))
    if not frames or _package_of(frames[-1]) in _OF_LIBRARIES:
        return False
    for caller, frame in pairwise(frames):
        if caller.f_globals.get("__name__") in _CALLERS and _package_of(frame) not in _OF_LIBRARIES:
            return calls(caller, frame)
    return False


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames of a traceback, from the one that caught the exception to the one that raised."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _package_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
