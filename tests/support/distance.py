"""A server that is further away: a proxy, in its own process, that only adds delay."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

HOST = "127.0.0.1"


@contextlib.contextmanager
def distant(port: int, round_trip: float) -> Iterator[Any]:
    """An address of the server with ``round_trip`` seconds of delay, also on connecting."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    proxy = context.Process(target=_delay, args=(theirs, port, round_trip), daemon=True)
    proxy.start()
    theirs.close()
    try:
        yield SimpleNamespace(host=HOST, port=ours.recv())
    finally:
        proxy.kill()
        proxy.join()
        proxy.close()
        ours.close()


def _delay(parent: Any, port: int, round_trip: float) -> None:
    asyncio.run(_serve(parent, port, round_trip))


async def _serve(parent: Any, port: int, round_trip: float) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection(HOST, port)
        await asyncio.sleep(round_trip)  # for the TCP handshake
        await asyncio.gather(
            _pump(reader, other_writer, round_trip / 2), _pump(other_reader, writer, round_trip / 2)
        )

    proxy = await asyncio.start_server(forward, HOST, 0, backlog=256)
    parent.send(proxy.sockets[0].getsockname()[1])
    async with proxy:
        await proxy.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Forward every chunk ``delay`` seconds after it arrived."""
    later: Callable[..., object] = asyncio.get_running_loop().call_later
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            later(delay, writer.write, data)
    later(delay, writer.close)
