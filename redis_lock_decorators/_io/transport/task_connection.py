"""Private connections of asyncio clients, opened and used on the client's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import finalize, ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.background.contexts import in_empty_context
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import inherited, private_connection
from redis_lock_decorators._io.transport.origins import Origin, is_elsewhere, origin
from redis_lock_decorators._io.transport.resp import ReplyParser
from redis_lock_decorators._io.transport.sockets import readable

#: any thread of a forked child: connections of its parent. To close one, also by a finalizer, would
#: deregister it from the selector that the child shares with the parent.
_inherited: list[object] = []


class TaskConnection:
    """A private connection for one exchange at a time, without timeouts of its own.

    Args:
        connection: the client library's connection, already open.
        leads_to: where the pool's connections led when it was opened.

    Attributes:
        connection: the client library's connection.
        patience: seconds to wait for a reply: the client's own timeout, or less.
        loop: its event loop.
        in_time_until: until when no exchange is late, in monotonic seconds.
        last_used: when it was last given back, in monotonic seconds.
        replies: the parser of its replies.
    """

    __slots__ = (
        "__weakref__",
        "_has_input",
        "_origin",
        "connection",
        "in_time_until",
        "last_used",
        "loop",
        "patience",
        "replies",
    )

    def __init__(self, connection: Any, leads_to: Origin) -> None:
        longest = private_connection.PATIENCE
        self.connection = connection
        inherited.add(self)
        self.patience = min(connection.socket_timeout or longest, longest)
        self.last_used = self.in_time_until = monotonic()
        self.replies = ReplyParser(partial(_error_reply, connection._parser))
        connection.socket_timeout = None
        self._origin = leads_to
        self.loop = asyncio.get_running_loop()
        self._has_input = input_check(connection._writer)
        # Not the connection: its reader refers to the task that reads, and so to this object.
        transport = connection._writer.transport
        own = fork.process_id, self.loop
        discard = finalize(self, _discard, *own, transport, ref(connection))
        discard.atexit = False

    def fileno(self) -> int:
        """The descriptor of the connection; raises an exception if that is closed."""
        return descriptor(self.connection)

    def serves(self, pool: Any) -> bool:
        """Whether a request may be sent on it after it was idle.

        Not if either side closed it, or if it does not lead where the pool leads now. Input though
        no reply is due means that the server has closed it: an event loop that was blocked, even
        only since the last reply, has not read that yet.
        """
        connection = self.connection
        reader, writer = connection._reader, connection._writer
        if reader is None or writer is None or reader.at_eof() or writer.is_closing():
            return False
        if self._origin != origin(pool) or is_elsewhere(connection, pool):
            return False
        return not self._has_input(0) and not self.replies.has_rest

    def close(self) -> None:
        """Close it immediately; from another thread, soon: a coroutine may be closed there."""
        if is_running_here(self.loop):
            close(self.connection)
        else:
            call_on(self.loop, close, self.connection)


def _error_reply(parser: Any, text: str) -> Exception:
    """The error of a reply; raised if it ends the connection, such as too many clients."""
    error: Exception = parser.parse_error(text)
    if not error_replies.is_reply(error):
        raise error
    return error


def _discard(
    process: int, loop: asyncio.AbstractEventLoop, transport: Any, find: Callable[[], Any]
) -> None:
    """Close what is left of a connection that was dropped, on any thread."""
    connection = find()
    if process != fork.process_id:
        _inherited.append((transport, connection))
        return
    if connection is not None:  # its library would warn that it is still open
        connection._reader = connection._writer = None
    call_on(loop, transport.abort)


async def opened(kind: Any, parameters: dict[str, Any], until: float) -> Any:
    """A connection like those of an asyncio client's pool, opened by ``until`` in one attempt.

    Raises:
        TimeoutError: the client's, also as soon as a single step has taken ``PATIENCE``.
    """
    connection = private_connection.made(kind, parameters)
    private_connection.limit_steps(connection, private_connection.PATIENCE)
    connection.lock_process = fork.process_id
    connecting = in_empty_context(connection.connect())
    try:
        async with timeout(until - monotonic(), connecting):
            await connecting
    except BaseException as error:
        close(connection)
        if isinstance(error, asyncio.TimeoutError) and not is_of_handler(error):
            raise client_errors.no_reply(connection) from None
        raise
    return connection


def descriptor(connection: Any) -> int:
    """The descriptor of an asyncio connection; raises an exception if that is closed."""
    writer = connection._writer
    if writer.is_closing():  # uvloop still has the number of the descriptor
        raise BrokenPipeError
    found: int = writer.get_extra_info("socket").fileno()
    return found


def close(connection: Any) -> None:
    """Close a connection in one step, without waiting: TLS would wait for the other side."""
    abort(connection)
    if not _is_inherited(connection):
        connection._reader = connection._writer = None


def abort(connection: Any) -> None:
    """End a connection in one step; tasks that read or write on it fail.

    A connection of the process that this one was forked from remains open.
    """
    if _is_inherited(connection):
        _inherited.append(connection)
        return
    transport = getattr(connection._writer, "transport", None)
    if transport is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            transport.abort()


def _is_inherited(connection: Any) -> bool:
    own = fork.process_id
    return bool(getattr(connection, "lock_process", own) != own)


def fail_waiting(connection: Any) -> None:
    """Notify tasks that read or write on a connection that it is closed.

    Its transport does so by a callback of the event loop, which a signal handler's exception may
    lose. A second notification has no effect.
    """
    transport = getattr(connection._writer, "transport", None)
    find = getattr(transport, "get_protocol", None)
    protocol = None if find is None else find()  # None: it was notified
    if protocol is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            protocol.connection_lost(None)


def input_check(writer: Any) -> Callable[[float], object]:
    """A function that waits some milliseconds for input, without the event loop."""
    plain = writer.get_extra_info("socket")
    if plain is None:
        return lambda milliseconds: False
    return readable(plain) if plain.fileno() >= 0 else lambda milliseconds: True
