"""The ways from works that are greenlets to a blocking client's server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from redis_lock_decorators._flow.background import Subscription
from redis_lock_decorators._io.background.wakeups import Gate
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_errors import is_reply
from redis_lock_decorators._io.transport.subscriptions import (
    LeadsThere,
    lookout,
    subscription_connection,
)

if TYPE_CHECKING:
    from redis_lock_decorators._io.background.greenlets import GreenletWorker

T = TypeVar("T")

#: Seconds that a work waits for words before it looks whether it is to end.
GLANCE = 0.25
#: Seconds between two looks for words where waiting for them would stop all greenlets.
LOOK = 0.005


class GreenletPort:
    """A blocking client as works in the background see it: others go on while it is waited for."""

    def __init__(self, port: BlockingPort, loop_thread: GreenletWorker) -> None:
        self._port = port
        self._loop_thread = loop_thread
        self.sleep = loop_thread.sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def send(self, *command: Any, until: float) -> Any:
        with self._loop_thread.aside():
            return await self._port.send(*command, until=until)

    async def send_urgent(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)

    async def send_together(self, *commands: tuple[Any, ...], until: float) -> list[Any]:
        with self._loop_thread.aside():
            return await self._port.send_together(*commands, until=until)

    async def drop_idle_connections(self) -> None:
        with self._loop_thread.aside():
            await self._port.drop_idle_connections()

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        if len(works) == 1:
            return [await works[0]]
        found: dict[int, T] = {}

        async def one(place: int, work: Awaitable[T]) -> None:
            found[place] = await work

        workers = [self._loop_thread.worker(one(place, work)) for place, work in enumerate(works)]
        with self._loop_thread.aside():
            for worker in workers:
                if worker is not None:
                    worker.join()
        if len(found) < len(works):
            raise RuntimeError("some of the requests could not be made")
        return [found[place] for place in range(len(works))]

    async def subscription(self, key: bytes) -> Subscription:
        leads_there = lookout(self._port.client)
        with self._loop_thread.aside():
            connection = subscription_connection(self._port.client, key)
        return GreenletSubscription(connection, self._loop_thread, leads_there)


class GreenletSubscription:
    """Over a blocking connection that a work waits for."""

    def __init__(
        self, connection: Any, loop_thread: GreenletWorker, leads_there: LeadsThere = bool
    ) -> None:
        self._connection = connection
        self._loop_thread = loop_thread
        self._leads_there = leads_there
        self._is_closed = False
        home = type(connection._sock).__module__
        self._stops_all = home.partition(".")[0] in ("socket", "ssl")

    async def send(self, *command: Any) -> None:
        if not self._leads_there(self._connection):
            self.abort()
            return
        with self._loop_thread.aside():
            self._connection.send_command(*command)

    async def receive(self, tell: Callable[[Any], None]) -> None:
        try:
            while not self._is_closed:
                with self._loop_thread.aside():
                    replies = [self._reply()] if self._is_there() else []
                for reply in replies:
                    if not self._is_closed:
                        tell(reply)
        except Exception:
            if not self._is_closed:
                raise
        finally:
            self._connection.disconnect()

    async def close(self) -> None:
        self._is_closed = True
        with self._loop_thread.aside():
            self._connection.disconnect()

    def abort(self) -> None:
        self._is_closed = True

    def _reply(self) -> Any:
        """The next reply; an error that the server replied with is one too."""
        try:
            return self._connection.read_response()
        except Exception as error:
            if not is_reply(error):
                raise
            return error

    def _is_there(self) -> bool:
        """Whether there is something to read, after a while."""
        if not self._stops_all:
            return bool(self._connection.can_read(timeout=GLANCE))
        if self._connection.can_read(timeout=0):
            return True
        Gate().wait(LOOK)
        return False
