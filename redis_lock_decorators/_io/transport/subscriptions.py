"""Private connections for pub/sub, in RESP2 where messages are plain replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.client_nodes import address_of
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.error_replies import is_reply
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import inherited, private_connection
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.loop_connection import LoopSocket
from redis_lock_decorators._io.transport.master_check import MasterCheck
from redis_lock_decorators._io.transport.origins import is_elsewhere, origin
from redis_lock_decorators._io.transport.task_connection import abort, close, descriptor, opened
from redis_lock_decorators._io.transport.thread_calls import NoThread, in_thread

#: Whether a connection leads to the server to which its client's pool connects now.
FollowsPool = Callable[[Any], bool]


class FollowingSubscription:
    """A subscription over one connection, which ends when its client's pool leads elsewhere."""

    def __init__(
        self,
        connection: Any,
        follows_pool: FollowsPool = bool,
        master_check: MasterCheck | None = None,
    ) -> None:
        self._connection = connection
        self._follows_pool = follows_pool
        self._master_check = master_check
        self._is_closed = False
        inherited.add(self)

    def fileno(self) -> int:
        """The descriptor of the connection; raises an exception if that is closed."""
        found: int = self._connection._sock.fileno()
        return found

    async def send(self, *command: Any) -> None:
        self._abort_if_elsewhere()
        if self._is_closed:  # sending would open the connection again
            return
        await self._write(command)
        if not self._is_closed and self._master_check is not None:
            await self._master_check.ask_if_due()
            self._abort_if_elsewhere()

    def abort(self) -> None:
        raise NotImplementedError

    async def _write(self, command: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def _abort_if_elsewhere(self) -> None:
        if not self._is_closed and not self._follows_pool(self._connection):
            self.abort()


class TaskSubscription(FollowingSubscription):
    """A subscription over an asyncio connection."""

    def fileno(self) -> int:
        return descriptor(self._connection)

    async def receive(self, on_reply: Callable[[Any], None]) -> None:
        while not self._is_closed:
            try:
                reply = await self._connection.read_response()
            except Exception as error:
                if isinstance(error.__context__, GeneratorExit):
                    raise error.__context__ from None  # the client's clean-up has replaced it
                if not is_reply(error):
                    raise
                reply = error
            on_reply(reply)

    async def close(self) -> None:
        self._is_closed = True
        close(self._connection)

    def abort(self) -> None:
        self._is_closed = True
        abort(self._connection)

    async def _write(self, command: tuple[Any, ...]) -> None:
        await self._connection.send_packed_command([packed(command)], check_health=False)


class ThreadSubscription(FollowingSubscription):
    """A subscription over a blocking client's connection, on an event loop."""

    def __init__(
        self,
        connection: Any,
        follows_pool: FollowsPool = bool,
        master_check: MasterCheck | None = None,
    ) -> None:
        super().__init__(connection, follows_pool, master_check)
        self._socket = LoopSocket(connection)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def receive(self, on_reply: Callable[[Any], None]) -> None:
        self._socket.start(on_reply, self._fail)
        await self._end

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._is_closed = True
        self._socket.close()
        if not self._end.done():
            self._end.set_result(None)

    async def _write(self, command: tuple[Any, ...]) -> None:
        self._socket.send(packed(command))

    def _fail(self, error: Exception) -> None:
        self._is_closed = True
        if not self._end.done():
            self._end.set_exception(error)


async def task_subscription(client: Any, key: bytes) -> TaskSubscription:
    """A subscription with an asyncio client's connection parameters, to the node of a key."""
    follows_pool = pool_check(client)
    kind, parameters = address_of(client, key)
    until = monotonic() + private_connection.PATIENCE
    connection = await cancellable(opened(kind, parameters, until), _discard)
    if not hasattr(connection._writer, "transport"):
        close(connection)
        raise TypeError(f"{kind.__name__} has no transport, as in fakes of a server")
    connection.socket_timeout = None
    private_connection.stop_decoding(connection)
    return TaskSubscription(connection, follows_pool, MasterCheck(client, _ask_in_task))


async def find_nodes(client: Any, until: float) -> None:
    """Have a cluster client that was not used yet find out which node serves which slots."""
    try:
        async with timeout(until - monotonic()):
            await cancellable(client.initialize())
    except asyncio.TimeoutError as error:
        if is_of_handler(error):
            raise
        raise client_errors.mark_unsent(client_errors.no_reply(client)) from None
    except Exception as error:
        client_errors.mark_caught(error)
        raise


async def thread_subscription(client: Any, key: bytes) -> ThreadSubscription:
    """A subscription with a blocking client's connection parameters, to the node of a key."""
    follows_pool = pool_check(client)
    connect = partial(subscription_connection, client, key)
    try:
        # Resolving the address may take longer than the connection's own timeouts.
        async with timeout(private_connection.PATIENCE):
            connection = await in_thread(connect, lambda late: late.disconnect())
    except asyncio.TimeoutError:
        raise client_errors.no_reply(client) from None
    master_check = MasterCheck(client, ThreadQuestions().ask)
    return ThreadSubscription(connection, follows_pool, master_check)


def pool_check(client: Any) -> FollowsPool:
    """A check for a connection that is opened now: does it still lead where the pool does?

    It is always true for a cluster client, whose nodes keep their addresses; moved slots are
    noticed elsewhere.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None or hasattr(client, "nodes_manager") or hasattr(pool, "nodes"):
        return bool
    leads_to = origin(pool)

    def follows_pool(connection: Any) -> bool:
        now = client.connection_pool
        return leads_to == origin(now) and not is_elsewhere(connection, now)

    return follows_pool


async def _ask_in_task(pool: Any) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        async with timeout(private_connection.PATIENCE):
            await pool.get_master_address()


class ThreadQuestions:
    """Asks for the master on separate threads, for a limited time.

    A Sentinel may hang, and a blocking client may have no time limit of its own. The next question
    opens a new connection.
    """

    #: Questions that may hang at a time.
    MOST = 3

    def __init__(self) -> None:
        self._under_way: set[object] = set()  #: any thread

    async def ask(self, pool: Any) -> None:
        if len(self._under_way) >= self.MOST:
            return
        question = object()

        def work() -> None:
            try:
                pool.get_master_address()
            finally:
                self._under_way.discard(question)

        self._under_way.add(question)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(private_connection.PATIENCE):
                try:
                    await in_thread(work)
                except NoThread:
                    self._under_way.discard(question)


async def _discard(connection: Any) -> None:
    close(connection)


def subscription_connection(client: Any, key: bytes) -> Any:
    """A new connection for messages, like a blocking client's to the node of a key."""
    until = monotonic() + private_connection.PATIENCE
    connection = private_connection.opened(*address_of(client, key), until)
    private_connection.stop_decoding(connection)
    return connection
