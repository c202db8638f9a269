"""Whether what is published to a channel is heard there, and whether that can be known."""

from __future__ import annotations

from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import is_unknown


class NotReceived(Exception):
    """Something between us and the server hides who hears."""


async def refuse_unheard(port: Port, channel: str, until: float) -> None:
    """Make sure that publishing is allowed, and that the number of hearers is not hidden.

    A client of a cluster may publish by a node where nobody listens.

    Raises:
        NotReceived: the server counts no hearer on the channel.
    """
    name = channel.encode()
    heard = await port.send("PUBLISH", name, "hello", until=until)
    if port.slotted:
        return
    if heard == 0:
        raise NotReceived("PUBLISH counts no hearer")
    if await _hearers(port, name, until) == 0:
        raise NotReceived("PUBSUB NUMSUB counts no hearer")


async def _hearers(port: Port, channel: bytes, until: float) -> int | None:
    """Who listens to the channel itself and not to a pattern; None if that is not told."""
    try:
        found = await port.send("PUBSUB", "NUMSUB", channel, until=until)
    except Exception as error:
        if is_unknown(port, error):
            raise
        return None
    return int(found[-1]) if isinstance(found, list) and found else None
