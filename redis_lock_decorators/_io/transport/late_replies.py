"""Replies to requests whose callers were cancelled after these were sent."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io.background.supervised import CHECK_INTERVAL
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batch import Request, Transport


class LateReplies:
    """The late replies to the requests of one batcher, by the ``sending`` of each request.

    Only releases have one. An entry lasts until it is read, or its release no longer exists.

    Attributes:
        unread: the task that reads the replies of an exchange whose task was cancelled.
    """

    __slots__ = ("_replies", "unread")  #: loop only

    def __init__(self) -> None:
        self._replies: WeakKeyDictionary[Sending, asyncio.Future[Any]] = WeakKeyDictionary()
        self.unread: asyncio.Future[Any] | None = None

    def expect(self, request: Request) -> bool:
        """Give a release a new future for its reply if its future was cancelled; whether it was."""
        if request.sending is None or not request.reply.cancelled():
            return False
        request.reply = reply = request.reply.get_loop().create_future()
        reply.add_done_callback(_retrieve, context=Context())
        self._replies[request.sending] = reply
        return True

    def pop(self, sending: Sending) -> asyncio.Future[Any] | None:
        """Return the future of the reply to a request; None if none is expected."""
        return self._replies.pop(sending, None)


async def arrived(reply: asyncio.Future[Any], transport: Transport, until: float) -> Any:
    """Return a late reply; raise the client's TimeoutError if it has not arrived at ``until``."""
    while not reply.done() and (left := until - monotonic()) > 0:
        await asyncio.wait([reply], timeout=min(left, CHECK_INTERVAL))  # its wake-up may be lost
    if not reply.done() or reply.cancelled():
        raise transport.no_reply()
    return reply.result()


def _retrieve(reply: asyncio.Future[Any]) -> None:
    """Prevent the warning of asyncio about an error that no code has read."""
    if not reply.cancelled():
        reply.exception()
