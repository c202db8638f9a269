"""The connection of a subscriber: opened while there are waiters, reopened when it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.background import Subscription, Timer
from redis_lock_decorators._flow.queue.admission import Admission
from redis_lock_decorators._flow.queue.entries import QueueEntries
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.recheck import REPLY_SILENCE
from redis_lock_decorators._flow.queue.session import Session
from redis_lock_decorators._flow.queue.subscriber_port import SubscriberLoop, SubscriberPort
from redis_lock_decorators._flow.queue.subscription_check import NotReceived, refuse_unreceived
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.requests import is_unknown
from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._rules import delays


class SubscriberConnection:
    """Subscribes to one channel at one node while waiters need it.

    It ends once: when there have been no waiters for a while, or no message can reach it. Waiters
    that join later are sent to its successor. Each step of opening has a time limit; while no
    connection is open the waiters poll. A copy in a forked child does nothing: the waiters are the
    parent's.

    Attributes:
        channel: the channel.
        is_open: messages can arrive.
        is_failing: the last try to open a connection failed.
        connection_number: counts its connections.
    """

    def __init__(
        self,
        lease_loop: SubscriberLoop,
        port: SubscriberPort,
        channel: str,
        key: bytes,
        end: Callable[[Any], object],
        reachability: Reachability | None = None,
    ) -> None:
        self.channel = channel
        self._reachability = reachability or Reachability()
        #: written by the loop, read by any thread
        self.is_open = self.is_failing = False
        self.connection_number = 0
        self._is_unavailable = lease_loop.now() < self._reachability.unavailable_until
        self._is_alive = self._has_ended = False
        self._wakes_at = math.inf
        #: any thread
        self._entries = QueueEntries()
        self._admission = Admission(lease_loop)
        #: loop only
        self._end = end
        self._process = fork.process_id
        self._lease_loop = lease_loop
        self._port = port
        self._key = key  # any key of the node
        self._timer: Timer | None = None
        self._subscription: Subscription | None = None
        self._session = Session()
        self._opens_by = math.inf
        self._has_opened = False
        self._last_used = 0.0

    @property
    def is_copy(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._process != fork.process_id

    @property
    def is_unavailable(self) -> bool:
        """Whether no message can reach this subscriber."""
        return self._is_unavailable

    @property
    def round_trip(self) -> float:
        """How many seconds a reply took, as last measured; 0 if none has arrived."""
        return self._session.round_trip

    @property
    def unavailable_until(self) -> float:
        """When to try another subscriber, in monotonic seconds."""
        return self._reachability.unavailable_until

    def open(self) -> None:
        """Start to subscribe, unless that has begun. Loop only."""
        if self._has_ended:
            self._lease_loop.wanted.discard(self)
            self._notify_all(Signal.RETRY)
            self._lease_loop.stop_if_idle()
        elif self.is_open:
            self._admission.resume()
        elif not self._is_alive and self._entries:
            self._is_alive = True
            self._lease_loop.wanted.add(self)
            self._lease_loop.start(self._run(), self._stop)
        elif not self._is_alive:  # the waiter has left in the meantime
            self._stop()

    def tick(self) -> None:
        raise NotImplementedError

    def _on_message(self, message: Any) -> None:
        raise NotImplementedError

    def _wake_in_time(self) -> None:
        raise NotImplementedError

    async def _run(self) -> None:
        pauses = delays.recovering(self._lease_loop.random)
        while self._entries and not self._is_unavailable and not self.is_copy:
            try:
                await self._subscribe()
            except Exception as error:
                self._on_failure(error)
            self.is_open = False
            self.is_failing = not self._has_opened
            if self._has_opened:
                pauses = delays.recovering(self._lease_loop.random)
            self._entries.rebuild_index()  # no tick does so while no connection is open
            self._notify_all(Signal.RETRY)
            if self._entries:
                await self._lease_loop.sleep(next(pauses))

    def _stop(self) -> None:
        """End; called after ``_run``, even if that was cancelled before its first step."""
        self.is_open = self._is_alive = False
        self._lease_loop.wanted.discard(self)
        self._end(self)
        self._has_ended = True
        # After the flags: a waiter that joins now sees them or is notified.
        self._notify_all(Signal.UNAVAILABLE if self._is_unavailable else Signal.RETRY)
        self._lease_loop.stop_if_idle()

    async def _subscribe(self) -> None:
        """Receive messages until the connection breaks or is closed."""
        self._has_opened = False
        port = self._lease_loop.port(self._port)
        self._subscription = subscription = await port.subscription(self._key)
        self._session.connect()
        self._timer = self._lease_loop.timer(self.tick)
        self._limit_opening()
        try:
            await subscription.send("INFO", "server")
            await subscription.send("SUBSCRIBE", self.channel)
            await subscription.receive(self._on_message)
        except Exception:
            if self._subscription is subscription:
                raise
        finally:
            self._subscription = None
            self.is_open = False
            self.connection_number += 1
            await subscription.close()

    def _limit_opening(self) -> float:
        """Start the time limit of the next step of opening; returns when it ends."""
        self._opens_by = self._wakes_at = self._lease_loop.now() + REPLY_SILENCE
        if self._timer is not None:
            self._timer.set(self._opens_by)
        return self._opens_by

    async def _begin(self) -> None:
        """Become open, if messages arrive."""
        subscription = self._subscription
        try:
            began, opens_by = self._lease_loop.now(), self._limit_opening()
            until = TimeLimits(
                opens_by, opens_by + REPLY_SILENCE
            )  # others' requests may be sent first
            port = self._lease_loop.port(self._port)
            await refuse_unreceived(port, self.channel, until)
        except Exception as error:
            if subscription is not None and subscription is self._subscription:
                self._on_failure(error)
                self._close(subscription)
            return
        if subscription is None or subscription is not self._subscription:  # closed since
            return
        self._last_used = now = self._lease_loop.now()
        self._session.begin(now, round_trip=now - began)
        self._admission.begin(self._entries.waiters)
        self.is_open = self._has_opened = True
        self.is_failing = False
        self._admission.step()
        self._wake_in_time()

    def _on_failure(self, error: Exception) -> None:
        """Note why a connection failed; only the server's own refusals are worth a longer pause."""
        if is_unknown(self._port, error):
            return
        if not isinstance(error, NotReceived) and not self._port.is_answer(error):
            self._reachability.warn(error, self.channel)  # such as a thread that cannot be started
        elif self._reachability.note_failure(error, self.channel, self._lease_loop.now()):
            self._become_unavailable()

    def _forbid(self, error: Exception) -> None:
        """End, as this client has no permission to grant expired locks."""
        if self._is_unavailable:
            return
        self._reachability.forbid(error, self._lease_loop.now())
        self._become_unavailable()
        if self._subscription is not None:
            self._close(self._subscription)

    def _become_unavailable(self) -> None:
        self._is_unavailable = True
        self._notify_all(Signal.UNAVAILABLE)

    def _close(self, subscription: Subscription) -> None:
        """Close the connection in the background; the waiters do not wait for that."""
        self._subscription = None
        self.is_open = False
        self.connection_number += 1
        self._notify_all(Signal.RETRY)
        self._lease_loop.start(subscription.close(), subscription.abort)

    def _notify_all(self, signal: Signal) -> None:
        for waiter in self._entries.waiters():
            waiter.wakeup.notify(signal)
