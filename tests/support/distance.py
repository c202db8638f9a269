"""A server that is further away: a proxy, in a process of its own, that only delays."""

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
    """Where the server is that many seconds away: also for who connects."""
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


def _delay(told: Any, port: int, round_trip: float) -> None:
    asyncio.run(_serve(told, port, round_trip))


async def _serve(told: Any, port: int, round_trip: float) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection(HOST, port)
        await asyncio.sleep(round_trip)  # that of TCP's own handshake
        await asyncio.gather(
            _pump(reader, other_writer, round_trip / 2), _pump(other_reader, writer, round_trip / 2)
        )

    proxy = await asyncio.start_server(carry, HOST, 0, backlog=256)
    told.send(proxy.sockets[0].getsockname()[1])
    async with proxy:
        await proxy.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Carry every piece so many seconds after it came, however many there are."""
    later: Callable[..., object] = asyncio.get_running_loop().call_later
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            later(delay, writer.write, data)
    later(delay, writer.close)
