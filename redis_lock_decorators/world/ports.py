"""The ports of an event loop to blocking clients."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Any

from redis_lock_decorators.world.blocking import BlockingPort
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.courier import Courier
from redis_lock_decorators.world.lines import thread_line
from redis_lock_decorators.world.relays import LineCarrier, ThreadCarrier
from redis_lock_decorators.world.tasks import AsyncioPort
from redis_lock_decorators.world.trips import Carrier

#: Seconds for which a port that nobody asks for is kept, with its connection.
UNUSED = 60.0


class Direct(Courier):
    """Where a connection takes requests while others are under way, none waits for another."""

    async def exchange(
        self, carrier: Carrier, command: tuple[Any, ...], until: float, first: bool = False
    ) -> Any:
        (reply,) = await carrier.carry([command], until)
        if isinstance(reply, Exception):
            raise reply
        return reply


class Ports:
    """A port to each client that is in use: each has a connection, and keeps the client alive."""

    def __init__(self) -> None:
        self._ports: OrderedDict[int, tuple[AsyncioPort, float]] = OrderedDict()

    def beside(self, port: Any) -> AsyncioPort:
        """The port on the running event loop to the client of a blocking port."""
        now, client = monotonic(), id(port.client)
        found = self._ports[client][0] if client in self._ports else beside(port)
        self._ports[client] = found, now
        self._ports.move_to_end(client)
        self._close_unused(now)
        return found

    def close(self) -> None:
        """Close all of them."""
        while self._ports:
            self._ports.popitem()[1][0].close()

    def _close_unused(self, now: float) -> None:
        """Close those at the front, which were asked for longest ago."""
        for client, (port, used) in list(islice(self._ports.items(), 2)):
            if used < now - UNUSED:
                del self._ports[client]
                port.close()


def beside(port: BlockingPort) -> AsyncioPort:
    """A port on the running event loop to the client of a blocking port."""
    client = port.client
    facts = Facts(client, Courier() if port.resends else Direct(), port.bell)
    facts.serials = port.serials
    carrier: Carrier
    carrier = ThreadCarrier(client, facts) if port.resends else LineCarrier(client.connection_pool)
    return AsyncioPort(client, facts, carrier, thread_line)
