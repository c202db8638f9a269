"""Requests sent together to a node that no longer serves their slot."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, TryAgainError
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as NoReply
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.asyncio_port import port_of
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.private_pool import PrivatePool

ACQUIRE, CONFIRM = ("EVALSHA", "sha", 1, b"key", "identifier", 1), ("WAIT", 1, 100)
UNTIL = 1e9


class Cluster:
    """A cluster client; with ``moves`` its slots have moved after the next pipeline."""

    __module__ = "redis.cluster"

    redirection: Exception | None = None

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
        if self.redirection is not None:
            return [self.redirection, 1]
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
        async def execute(raise_on_error: bool, allow_redirections: bool) -> list[Any]:
            assert not allow_redirections
            return self.send(raise_on_error)

        return SimpleNamespace(execute_command=lambda *command, **options: None, execute=execute)


def sent(
    kind: type[Cluster], moves: bool = False, redirection: Exception | None = None
) -> list[Any]:
    client = kind(moves)
    client.redirection = redirection
    if kind is Cluster:
        port = BlockingPort(client, ClientState(client, PrivatePool(), background_loop()))
        return run(port.send_together(ACQUIRE, CONFIRM, until=UNTIL))

    async def send() -> list[Any]:
        port = port_of(client, ClientState(client, RequestBatcher(), CallerLoop()))
        return await port.send_together(ACQUIRE, CONFIRM, until=UNTIL)

    return asyncio.run(send())


class UnusedCluster(AsyncCluster):
    """A cluster client that finds out which node serves which slots when it is first used."""

    def __init__(self, moves: bool) -> None:
        super().__init__(moves)
        self.nodes_manager.slots_cache = {}

    async def initialize(self) -> None:
        self.nodes_manager.slots_cache = dict.fromkeys(range(16_384), _node("a"))


def _node(name: str) -> list[Any]:
    return [SimpleNamespace(name=name)]


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster, UnusedCluster])
def test_confirmation_by_a_former_node_of_a_slot_is_unknown(kind: type[Cluster]) -> None:
    with pytest.raises(Disconnected, match="moved"):
        sent(kind, moves=True)


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster, UnusedCluster])
def test_confirmation_by_the_node_of_a_slot_counts(kind: type[Cluster]) -> None:
    assert sent(kind, moves=False) == [b"identifier:1", 1]


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster])
def test_confirmation_before_a_redirected_request_is_run_does_not_count(
    kind: type[Cluster],
) -> None:
    with pytest.raises(Disconnected, match="moved"):
        sent(kind, redirection=MovedError("0 :1"))


@pytest.mark.parametrize("kind", [Cluster, AsyncCluster])
def test_confirmation_by_a_node_that_still_exports_the_slot_does_not_count(
    kind: type[Cluster],
) -> None:
    """The other node may own the slot by now, and run the request without a key of the lock."""
    with pytest.raises(TryAgainError):
        sent(kind, redirection=AskError("0 other:1"))


def test_waiters_share_one_subscriber_before_the_client_is_first_used() -> None:
    client = UnusedCluster(moves=False)

    async def subscribers() -> list[object]:
        port = port_of(client, ClientState(client, RequestBatcher(), CallerLoop()))
        await port.locate(b"key", UNTIL)
        early = port.subscriber(b"key")
        await client.initialize()
        return [early, port.subscriber(b"key")]

    early, late = asyncio.run(subscribers())
    assert early is late


def test_finding_the_nodes_too_late_counts_as_unsent() -> None:
    client = UnusedCluster(moves=False)
    client.initialize = partial(asyncio.sleep, 60)  # type: ignore[method-assign]

    async def locate() -> None:
        port = port_of(client, ClientState(client, RequestBatcher(), CallerLoop()))
        await port.locate(b"key", monotonic() + 0.5)

    loop = VirtualLoop()
    with pytest.raises(NoReply) as raised:
        loop.run_until_complete(locate())
    loop.close()
    assert not client_errors.was_sent(raised.value)
