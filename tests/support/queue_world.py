"""A simulated server with the processes that wait in the queue of one lock."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._rules import messages
from redis_lock_decorators._rules.keys import with_queue
from support.simulated_queue import Taking, Waiting
from support.simulation import Clock, SimulatedServer

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
EXTERNAL = "another library"


class World:
    """A server and the processes that wait for its locks."""

    def __init__(self, cluster: bool = False) -> None:
        self.server = SimulatedServer(Clock(), cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.processes: list[Waiting] = []

    def process(self) -> Waiting:
        self.processes.append(Waiting(self.server, len(self.processes)))
        return self.processes[-1]

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def holder(self, **options: Any) -> Taking:
        """A holder of the lock, in a process of its own."""
        holder = self.process().takes(**options)
        self.passes(0.01)
        assert holder.held
        return holder

    def is_empty(self) -> bool:
        return not any(self.server.members(key) for key in KEYS[1:]) and not self.holds()

    def holds(self) -> str | None:
        return self.server.value(KEY)


def waiting(world: World, count: int = 1, **options: Any) -> list[Taking]:
    """Processes with one waiter each, which have joined the queue in this order."""
    takings = []
    for _ in range(count):
        takings.append(world.process().takes(**options))
        world.passes(0.05)
    return takings


def hint(taking: Taking) -> str:
    return messages.hint(taking.claim.identifier).decode()


def publish(world: World, taking: Taking, message: str) -> None:
    """Publish a message to the process of a waiter, as any permitted client can."""
    assert taking.process.subscriber is not None
    world.server.publish(taking.process.subscriber.channel, message)
