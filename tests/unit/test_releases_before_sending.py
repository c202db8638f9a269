"""Releases that end before their request is sent, as while a connection is opened.

Such a request has released nothing, so it explains no missing key: that is a loss.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from support.asyncio_pools import Pool
from support.batching import SlowTransport, use_clock
from support.faults import Connecting, Fate, raising
from support.peers import Peers
from support.pooled_client import GET, Client, virtual_loop
from support.releases import FIRST, KEY, Limit, every_method, new_port
from support.simulation import SimulatedPort, acquired, cluster_port
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.transport import asyncio_pool, private_connection
from redis_lock_decorators._io.transport.asyncio_client import send_separately
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._rules.options import ReleaseMethod


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """An event loop whose batchers read its time."""
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


every_exception = pytest.mark.parametrize("error", [Limit(), KeyboardInterrupt()])


def interrupted(port: SimulatedPort, claim: Claim, method: ReleaseMethod, *fates: Fate) -> None:
    """Release a claim as an exit does, and again after the exception of the last fate."""
    port.faults = list(fates)
    with pytest.raises((Limit, KeyboardInterrupt)):
        run(release(port, claim, method))
    run(undo(port, claim))


@every_exception
@every_method
def test_loss_is_found_if_a_release_is_interrupted_while_it_connects(
    method: ReleaseMethod, error: BaseException
) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    interrupted(port, claim, method, Connecting(error))

    assert claim.lost_reason is not None
    assert claim.maybe_released == ()


@every_exception
def test_loss_is_found_if_the_request_for_one_of_several_keys_was_not_sent(
    error: BaseException,
) -> None:
    port = cluster_port()
    claim = acquired(port, "a", "b")
    port.server.drop(FIRST)

    interrupted(port, claim, "script", Connecting(error))

    assert claim.lost_reason is not None


def test_loss_is_found_if_the_transport_marks_an_exception_as_unsent() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.drop(KEY)

    interrupted(port, claim, "script", raising(client_errors.mark_unsent(Limit())))

    assert claim.lost_reason is not None


@every_exception
@every_method
def test_interruption_after_the_request_was_sent_explains_a_missing_key(
    method: ReleaseMethod, error: BaseException
) -> None:
    port = new_port()
    claim = acquired(port, "a")

    def run_then_interrupted(request: Any) -> Any:
        request.execute()
        raise error

    fates = [None] if method == "transaction" else []
    interrupted(port, claim, method, *fates, run_then_interrupted)  # type: ignore[list-item]

    assert claim.lost_reason is None


def test_private_pool_notes_a_request_when_its_connection_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[str] = []
    opened = private_connection.opened

    def opening(*arguments: Any) -> Any:
        noted.append("opened")
        return opened(*arguments)

    monkeypatch.setattr(private_connection, "opened", opening)
    with Peers(b"+OK\r\n") as pool:
        until = time.monotonic() + 60
        PrivatePool().exchange(pool, ("GET", "a"), until, lambda: noted.append("sending"))

    assert noted == ["opened", "sending"]


def test_private_pool_notes_no_request_if_no_connection_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[str] = []

    def interrupt(*arguments: Any) -> Any:
        raise Limit

    monkeypatch.setattr(private_connection, "opened", interrupt)
    with Peers() as pool, pytest.raises(Limit):
        until = time.monotonic() + 60
        PrivatePool().exchange(pool, ("GET", "a"), until, lambda: noted.append("sending"))

    assert noted == []


def test_queued_request_of_a_task_is_noted_when_its_batch_is_sent(loop: VirtualLoop) -> None:
    noted: list[str] = []

    async def scenario() -> None:
        transport, batcher = SlowTransport(loop, 1), RequestBatcher()
        until = loop.now + 60
        first = asyncio.ensure_future(batcher.request(transport, ("first",), until))
        await asyncio.sleep(0)
        replies = [
            asyncio.ensure_future(
                batcher.request(transport, (name,), until, partial(noted.append, name))
            )
            for name in ("cancelled", "second")
        ]
        replies[0].cancel()
        assert noted == []
        await asyncio.gather(first, replies[1])

    loop.run_until_complete(scenario())

    assert noted == ["second"]


async def directly(client: Client, until: float, note: Any) -> Any:
    """Send a request in the calling task."""
    return await client.batcher.exchange(client.transport, GET, until, sending=note)


async def in_a_batch(client: Client, until: float, note: Any) -> Any:
    """Send a request in the sending task."""
    return await client.batcher.exchange(client.transport, GET, until, first=True, sending=note)


async def together(client: Client, until: float, note: Any) -> Any:
    """Send requests over a connection of their own."""
    return await send_separately(client, client.batcher.idle, [GET], until, note)


@pytest.mark.parametrize("send", [directly, in_a_batch, together])
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_request_of_a_task_is_noted_once_its_connection_is_open(
    send: Any, is_interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    added = asyncio_pool.added

    async def opening(*arguments: Any) -> Any:
        noted.append("opening")
        if is_interrupted:
            raise Limit  # it may be an object that a program raises again, so it gets no mark
        return await added(*arguments)

    monkeypatch.setattr(asyncio_pool, "added", opening)
    loop = virtual_loop(monkeypatch)

    async def scenario() -> None:
        request = send(Client(Pool()), loop.now + 5, lambda: noted.append("sending"))
        with suppress(Limit, TimeoutError):
            await request

    loop.run_until_complete(scenario())
    loop.close()

    assert "sending" not in noted if is_interrupted else noted == ["opening", "sending"]
