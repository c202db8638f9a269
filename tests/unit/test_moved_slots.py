"""Requests that travel together to a node that their slot has left."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected

from redis_lock_decorators.world.bells import LoopBell, bell_of_threads
from redis_lock_decorators.world.blocking import BlockingPort, run
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.courier import Courier
from redis_lock_decorators.world.lane import Lane
from redis_lock_decorators.world.tasks import port_of

TAKE, CONFIRM = ("EVALSHA", "sha", 1, b"key", "identifier", 1), ("WAIT", 1, 100)
UNTIL = 1e9


class Cluster:
    """A cluster's client whose slots are elsewhere after a pipeline that ``moves`` them."""

    __module__ = "redis.cluster"

    def __init__(self, moves: bool) -> None:
        self.moves = moves
        self.nodes_manager = SimpleNamespace(slots_cache=dict.fromkeys(range(16_384), _node("a")))

    def execute_command(self, *command: Any) -> Any:
        raise AssertionError("one by one")

    def get_node_from_key(self, key: bytes) -> Any:
        return self.nodes_manager.slots_cache[0][0]

    def pipeline(self, **options: Any) -> Any:
        return SimpleNamespace(execute_command=lambda *command, **options: None, execute=self.send)

    def send(self, raise_on_error: bool) -> list[Any]:
        if self.moves:
            self.nodes_manager.slots_cache = dict.fromkeys(range(16_384), _node("b"))
        return [b"identifier:1", 1]


class AsyncCluster(Cluster):
    __module__ = "redis.asyncio.cluster"

    async def initialize(self) -> None:
        pass

    async def execute_command(self, *command: Any) -> Any:
        raise AssertionError("one by one")

    def pipeline(self, **options: Any) -> Any:
        async def execute(raise_on_error: bool) -> list[Any]:
            return self.send(raise_on_error)

        return SimpleNamespace(execute_command=lambda *command, **options: None, execute=execute)


def sent(kind: type[Cluster], moves: bool) -> list[Any]:
    client = kind(moves)
    if kind is Cluster:
        port = BlockingPort(client, Facts(client, Lane(), bell_of_threads()))
        return run(port.send_together(TAKE, CONFIRM, until=UNTIL))

    async def send() -> list[Any]:
        port = port_of(client, Facts(client, Courier(), LoopBell()))
        return await port.send_together(TAKE, CONFIRM, until=UNTIL)

    return asyncio.run(send())


def _node(name: str) -> list[Any]:
    return [SimpleNamespace(name=name)]


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster])
def test_confirmation_by_the_node_that_a_slot_has_left_is_unknown(kind: type[Cluster]) -> None:
    with pytest.raises(Disconnected, match="moved"):
        sent(kind, moves=True)


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster])
def test_confirmation_by_the_node_of_a_slot_counts(kind: type[Cluster]) -> None:
    assert sent(kind, moves=False) == [b"identifier:1", 1]
