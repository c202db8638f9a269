"""A simulated server with the processes that wait in the queue of one lock."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._rules import messages
from redis_lock_decorators._rules.keys import with_queue
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedServer

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
EXTERNAL = "another library"


class World:
    """A server and the processes that wait for its locks."""

    def __init__(self, cluster: bool = False) -> None:
        self.server = SimulatedServer(Clock(), cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.processes: list[SimulatedProcess] = []

    def process(self) -> SimulatedProcess:
        self.processes.append(SimulatedProcess(self.server, len(self.processes)))
        return self.processes[-1]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def holder(self, **options: Any) -> Acquisition:
        """A holder of the lock, in a separate process."""
        holder = self.process().acquire(**options)
        self.advance(0.01)
        assert holder.held
        return holder

    def is_empty(self) -> bool:
        return (
            not any(self.server.members(key) for key in KEYS[1:]) and not self.holder_identifier()
        )

    def holder_identifier(self) -> str | None:
        return self.server.value(KEY)


def waiting(world: World, count: int = 1, **options: Any) -> list[Acquisition]:
    """Processes with one waiter each, which have joined the queue in this order."""
    attempts = []
    for _ in range(count):
        attempts.append(world.process().acquire(**options))
        world.advance(0.05)
    return attempts


def hint(attempt: Acquisition) -> str:
    return messages.hint(attempt.claim.identifier).decode()


def publish(world: World, attempt: Acquisition, message: str) -> None:
    """Publish a message to the process of a waiter, as any permitted client can."""
    assert attempt.process.subscriber is not None
    world.server.publish(attempt.process.subscriber.channel, message)
