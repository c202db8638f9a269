"""The check that messages published to a subscribed channel are received."""

from __future__ import annotations

from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import is_unknown


class NotReceived(Exception):
    """The server does not know of our subscription; a proxy in between may hide it."""


async def refuse_unreceived(port: Port, channel: str, until: float) -> None:
    """Check that publishing is allowed and that the server counts our subscription.

    In a cluster it is only checked that publishing is allowed: the message may be published by
    another node than the subscribed one.

    Behind one address an older connection may lead to another server than the subscription, such as
    a demoted master, and keep doing so. The next check uses a new connection.

    Raises:
        NotReceived: the server counts no subscriber of the channel.
    """
    try:
        await _refuse_unreceived(port, channel, until)
    except NotReceived:
        await port.drop_idle_connections()
        raise


async def _refuse_unreceived(port: Port, channel: str, until: float) -> None:
    name = channel.encode()
    receivers = await port.send("PUBLISH", name, "hello", until=until)
    if port.slotted:
        return
    if receivers == 0:
        raise NotReceived("PUBLISH counts no receiver")
    if await _subscribers(port, name, until) == 0:
        raise NotReceived("PUBSUB NUMSUB counts no subscriber")


async def _subscribers(port: Port, channel: bytes, until: float) -> int | None:
    """The number of subscriptions to the channel, without patterns; None if not permitted."""
    try:
        found = await port.send("PUBSUB", "NUMSUB", channel, until=until)
    except Exception as error:
        if is_unknown(port, error):
            raise
        return None
    return int(found[-1]) if isinstance(found, list) and found else None
