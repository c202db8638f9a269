"""The port of blocking code: its methods never suspend, so a flow runs to its end in one step."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from redis_lock_decorators._flow.background import Subscription
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import LateReply, Sending, Watched
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.background.wakeups import ThreadWakeup
from redis_lock_decorators._io.background.worker import running_worker
from redis_lock_decorators._io.base_port import BasePort
from redis_lock_decorators._io.client_methods import disconnect, refuse_without_pipelines
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport.client_calls import (
    followed,
    own_replies_of,
    replies_of,
)
from redis_lock_decorators._io.transport.private_pool import PrivatePool, ThreadExclusive
from redis_lock_decorators._io.transport.watch import Watch
from redis_lock_decorators._io.transport.watch_pipeline import BlockingWatch
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.errors import LockError

T = TypeVar("T")


class RunningFlows(threading.local):
    """The number of flows on the stack of a thread or greenlet; too high after some interruptions.

    It is raised before a flow starts and lowered after it ends, so it is never too low.
    """

    number = 0


_running = RunningFlows()


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow whose port never suspends, and return its result."""
    try:
        _running.number += 1
        try:
            flow.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            _running.number -= 1
    except BaseException:
        flow.close()  # without a warning, if a signal handler raised before the flow began
        raise
    flow.close()
    raise RuntimeError("a blocking flow suspended: its port awaited something real")


def claims_below(flows: int) -> list[Claim]:
    """The claims of the flows on this stack, if more than so many ``flows`` run in all threads."""
    return _claims_on_stack() if _running.number > flows else []


def _claims_on_stack() -> list[Claim]:
    """The claims of the flows on this stack: the local ``claim`` of each caller of ``run``.

    The stack itself is searched: a separate record could be wrong after an exception from a signal
    handler. This is slow, so only code that is about to wait calls it, and only on top of another
    flow.
    """
    found, flow_runner = [], run.__code__
    above: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is flow_runner and above is not None:
            claim = above.f_locals.get("claim")
            if isinstance(claim, Claim):
                found.append(claim)
        above, frame = frame, frame.f_back
    return found


def _refuse_on_worker() -> None:
    """Refuse to wait on a background worker, which would block the messages that end the wait.

    Raises:
        LockError: this is a finalizer or a client hook that runs on a background worker.
    """
    if running_worker() is not None:
        raise LockError(
            "cannot wait for a lock on the thread that renews all locks and wakes all waiters, as "
            "nothing would end the wait: in finalizers and hooks of clients try a lock once"
        )


async def _log_errors_of(work: Callable[[], Awaitable[object]]) -> None:
    """Run work, and log the errors of its requests."""
    try:
        await work()
    except Exception as error:
        if not client_errors.is_outcome(error):
            raise
        log.info("could not clean up a lock: %s", described(error))


class BlockingPort(BasePort):
    """A blocking client as the flows see it."""

    __slots__ = ("_private_pool",)

    def __init__(self, client: Any, client_state: ClientState[PrivatePool]) -> None:
        self.client = client
        self.lease_loop = client_state.lease_loop
        self.renewer = client_state.lease_loop.renewer
        self._client_state = client_state
        self.held = client_state.held
        self.arrivals = client_state.arrivals
        self.serials = client_state.serials
        self.rights = client_state.rights
        self.slotted = client_state.slotted
        #: any thread
        self.transacts = client_state.transacts
        self._private_pool = client_state.sender if client_state.is_untouched(client) else None
        self.may_resend = self._private_pool is None

    async def sleep(self, seconds: float) -> None:
        _refuse_on_worker()
        time.sleep(seconds)

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        private_pool = self._private_pool
        if private_pool is not None:
            try:
                return private_pool.exchange(self.client.connection_pool, command, until, sending)
            except client_errors.PoolReplaced:
                self.use_methods()
                raise
        if sending is not None:
            sending()
        replies = replies_of(self.client, [command])
        if isinstance(replies[0], Exception):
            raise replies.pop()
        return replies[0]

    send_urgent = send

    async def send_renewal(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        private_pool = self._private_pool
        if private_pool is not None:
            try:
                pool = self.client.connection_pool
                return private_pool.exchange_all(pool, commands, until, sending)
            except client_errors.PoolReplaced:
                self.use_methods()
                raise
        refuse_without_pipelines(self.client)
        node = self._client_state.node(self.client, commands[0])
        if sending is not None:
            sending()
        replies = own_replies_of(self.client, commands)
        # Not followed: the former node may have answered the other commands before that one runs.
        first = replies[0]
        if isinstance(first, Exception) and error_replies.is_redirection(first):
            raise client_errors.moved(self.client, asks=error_replies.is_ask(first))
        replies = followed(self.client, commands, replies)
        if self._client_state.node(self.client, commands[0]) != node:
            raise client_errors.moved(self.client)
        return replies

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        return [await work for work in works]

    async def locate(self, key: bytes, until: float) -> None:
        """Blocking clients of clusters know their nodes from the start."""

    def wakeup(self) -> ThreadWakeup:
        _refuse_on_worker()
        return ThreadWakeup(self.lease_loop.begin)

    def late_reply(self, sending: Sending) -> LateReply | None:
        return None if sending.late is None else partial(self._arrived, sending.late)

    async def _arrived(self, late: Callable[[float], list[Any]], until: float) -> Any:
        """Return the late reply to a request; raise the client's TimeoutError at ``until``.

        A script may be sent twice: by its digest, and as text for a server that lacks that.
        """
        replies = late(until)
        reply = replies[0]
        if isinstance(reply, Exception) and self.lacks(reply) == "script":
            reply = replies[-1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def interrupted(self) -> list[Claim]:
        return claims_below(1)

    def would_stop_tasks(self) -> bool:
        return asyncio._get_running_loop() is not None

    async def subscription(self, key: bytes) -> Subscription:
        raise TypeError("only event loops and greenlets subscribe")

    async def drop_idle_connections(self) -> None:
        private_pool = self._private_pool
        if private_pool is not None:
            private_pool.drop()
            return
        disconnect(self.client)

    async def shield(
        self, work: Callable[[], Awaitable[object]], longest: float = math.inf
    ) -> None:
        try:
            await _log_errors_of(work)
        except GeneratorExit:  # the flow is being closed, and must not await again
            raise
        except BaseException:
            await _log_errors_of(work)  # an exception from outside interrupted it, at any line
            raise

    def watch(self, until: float) -> Watched:
        client, state = self.client, self._client_state
        self.check_pool()
        private_pool = self._private_pool
        if private_pool is None:
            return BlockingWatch(client, state, until)
        connection = ThreadExclusive(private_pool, client.connection_pool, until)
        return Watch(connection)

    def check_pool(self) -> None:
        """Use the client's methods from now on if its pool was replaced by the program's own."""
        private_pool = self._private_pool
        if private_pool is not None and not private_pool.is_fit(self.client.connection_pool):
            self.use_methods()

    def use_methods(self) -> None:
        """Use the client's own methods from now on, for the claims of this port and later ones."""
        self._client_state.use_methods(self.client)
        self.may_resend, self.transacts = True, self._client_state.transacts
        self._private_pool = None
