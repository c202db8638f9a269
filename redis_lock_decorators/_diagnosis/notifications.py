"""Whether messages are delivered, and whether their receivers are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._diagnosis.nodes import Asker, Node, connected
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._rules.permissions import CHANNEL

#: As the scripts of locks publish. KEYS: any key of the node; ARGV: the channel.
SCRIPT = (
    "return {redis.call('PUBLISH', ARGV[1], 'hello'), redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]}"
)


@dataclass(frozen=True)
class Delivery:
    """What became of messages to a subscribed channel.

    Attributes:
        is_received: one arrived.
        counts: how many receivers were reported, by what reported it; None for no report.
    """

    is_received: bool
    counts: dict[str, int | None]


def tried(node: Node, key: bytes) -> Delivery | None:
    """Publish to an own channel; None if the user may not subscribe.

    Raises:
        Exception: of the client's library; the server does not answer.
    """
    channel = f"{CHANNEL}{os.urandom(8).hex()}"
    with connected(node) as receiver, connected(node) as sender:
        if isinstance(receiver.ask("SUBSCRIBE", channel), Exception):
            return None
        published = sender.ask("PUBLISH", channel, "hello")
        counted = sender.ask("PUBSUB", "NUMSUB", channel)
        by_script = sender.ask("EVAL", SCRIPT, 1, key, channel)
        is_received = _receives(receiver)
    script = by_script if isinstance(by_script, list) else (None, None)
    counts = {
        "PUBLISH": _number(published),
        "PUBSUB NUMSUB": _number(counted[-1] if isinstance(counted, list) else None),
        "PUBLISH in a script": _number(script[0]),
        "PUBSUB NUMSUB in a script": _number(script[1]),
    }
    return Delivery(is_received, counts)


def _receives(receiver: Asker) -> bool:
    """Whether a message arrives before the time-out of the connection."""
    try:
        return not isinstance(receiver.read(), Exception)
    except Exception as error:
        if not client_errors.is_unknown(error):
            raise
        return False


def _number(reply: Any) -> int | None:
    return reply if isinstance(reply, int) else None


def findings(delivery: Delivery) -> Iterator[Finding]:
    """Judge the delivery of messages."""
    if not delivery.is_received:
        yield Finding(
            Severity.WAITING,
            "Messages are not delivered",
            "A client that subscribed did not receive what was published: waiters are not "
            "notified of a hand-over. They poll, and the order of arrival is lost.",
            "Connect to the server itself: a proxy or a load balancer in between does not support "
            "pub/sub, or leads to several servers.",
        )
    elif hidden := [name for name, count in delivery.counts.items() if count == 0]:
        yield Finding(
            Severity.WAITING,
            f"The receivers of messages are not counted: {', '.join(hidden)} reports 0",
            "Waiters cannot be distinguished from crashed ones: they poll, and the order of "
            "arrival is lost.",
            "Connect to the server itself: a proxy in between subscribes in place of its clients.",
        )
