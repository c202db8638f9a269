"""Requests to a blocking client's server from background work in greenlets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redis_lock_decorators._flow.background import Subscription
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io.background.hubs import is_select_replaced
from redis_lock_decorators._io.background.wakeups import Gate
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.error_replies import is_reply
from redis_lock_decorators._io.transport.master_check import MasterCheck
from redis_lock_decorators._io.transport.subscriptions import (
    FollowingSubscription,
    FollowsPool,
    pool_check,
    subscription_connection,
)

if TYPE_CHECKING:
    from redis_lock_decorators._io.background.greenlets import GreenletWorker

T = TypeVar("T")

#: Seconds of one wait for a message; after each, the subscription checks whether it was closed.
WAIT = 0.25
#: Seconds between two polls for messages if waiting for them would block all greenlets.
POLL_INTERVAL = 0.005


class GreenletPort:
    """A blocking client for background work; other greenlets run while one waits for it."""

    def __init__(self, port: BlockingPort, loop_thread: GreenletWorker) -> None:
        self._port = port
        self._loop_thread = loop_thread
        self.sleep = loop_thread.sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        with self._loop_thread.unlocked():
            return await self._port.send(*command, until=until, sending=sending)

    async def send_urgent(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        return await self.send(*command, until=until, sending=sending)

    async def send_renewal(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        with self._loop_thread.unlocked():
            return await self._port.send_together(*commands, until=until, sending=sending)

    async def drop_idle_connections(self) -> None:
        with self._loop_thread.unlocked():
            await self._port.drop_idle_connections()

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        if len(works) == 1:
            return [await works[0]]
        found: dict[int, T] = {}

        async def one(number: int, work: Awaitable[T]) -> None:
            found[number] = await work

        workers = [
            self._loop_thread.start_thread(one(number, work)) for number, work in enumerate(works)
        ]
        with self._loop_thread.unlocked():
            for worker in workers:
                if worker is not None:
                    worker.join()
        if len(found) < len(works):
            raise RuntimeError("some of the requests could not be made")
        return [found[number] for number in range(len(works))]

    async def subscription(self, key: bytes) -> Subscription:
        follows_pool = pool_check(self._port.client)
        with self._loop_thread.unlocked():
            connection = subscription_connection(self._port.client, key)
        master_check = MasterCheck(self._port.client, self._ask_master)
        return GreenletSubscription(connection, self._loop_thread, follows_pool, master_check)

    async def _ask_master(self, pool: Any) -> None:
        with self._loop_thread.unlocked():
            pool.get_master_address()


class GreenletSubscription(FollowingSubscription):
    """A subscription over a blocking connection."""

    def __init__(
        self,
        connection: Any,
        loop_thread: GreenletWorker,
        follows_pool: FollowsPool = bool,
        master_check: MasterCheck | None = None,
    ) -> None:
        module = type(connection._sock).__module__
        # The standard library's own sockets, not monkey-patched ones.
        blocks_all = module.partition(".")[0] in ("socket", "ssl")
        # The client waits for input by functions of ``select``, which may be left as they are.
        self._polls = blocks_all or not is_select_replaced()
        # A Sentinel that does not answer must not block all greenlets.
        super().__init__(connection, follows_pool, None if blocks_all else master_check)
        self._loop_thread = loop_thread

    async def receive(self, on_reply: Callable[[Any], None]) -> None:
        try:
            while not self._is_closed:
                with self._loop_thread.unlocked():
                    replies = [self._reply()] if self._has_input() else []
                for reply in replies:
                    if not self._is_closed:
                        on_reply(reply)
        except Exception:
            if not self._is_closed:
                raise
        finally:
            self._connection.disconnect()

    async def close(self) -> None:
        self._is_closed = True
        with self._loop_thread.unlocked():
            self._connection.disconnect()

    def abort(self) -> None:
        self._is_closed = True

    async def _write(self, command: tuple[Any, ...]) -> None:
        with self._loop_thread.unlocked():
            self._connection.send_command(*command)

    def _reply(self) -> Any:
        """The next reply or error reply."""
        try:
            return self._connection.read_response()
        except Exception as error:
            if not is_reply(error):
                raise
            return error

    def _has_input(self) -> bool:
        """Wait a little for input; returns whether there is some."""
        if not self._polls:
            return bool(self._connection.can_read(timeout=WAIT))
        if self._connection.can_read(timeout=0):
            return True
        Gate().wait(POLL_INTERVAL)
        return False
