"""What the ports of threads and of tasks have in common: the state of a client."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from redis_lock_decorators._flow.known_rights import KnownRights
from redis_lock_decorators._flow.port import LateReply, Sending
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.client_nodes import place_of
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic


class BasePort:
    """A client as the flows see it, without requests and pauses."""

    __slots__ = (
        "_client_state",
        "arrivals",
        "client",
        "held",
        "lease_loop",
        "may_resend",
        "renewer",
        "rights",
        "serials",
        "slotted",
        "transacts",
    )

    cancellable = False
    may_resend: bool

    now = staticmethod(monotonic)
    random = staticmethod(random.random)
    is_unknown = staticmethod(client_errors.is_unknown)
    is_outcome = staticmethod(client_errors.is_outcome)
    was_sent = staticmethod(client_errors.was_sent)
    is_answer = staticmethod(error_replies.is_answer)
    lacks = staticmethod(error_replies.lacks)

    # Each port sets these itself: calling a base method would slow each lease down.
    client: Any
    serials: Iterator[int]
    rights: KnownRights
    slotted: bool
    _client_state: ClientState[Any]

    def withdraw(
        self, identifier: str, error: BaseException, sending: Sending | None = None
    ) -> None:
        """Requests of threads are not queued."""

    def late_reply(self, sending: Sending) -> LateReply | None:
        return None

    def place(self) -> str:
        return place_of(self.client)

    def node(self, key: bytes) -> object:
        return self._client_state.node(self.client, ("", key))

    def subscriber(self, key: bytes) -> Subscriber:
        port: Any = self
        return self._client_state.subscriber(port, key)

    def is_subscribed(self, key: bytes) -> bool:
        state = self._client_state
        return bool(state.subscribers) and state.is_subscribed(self.client, key)

    def cohort(self, key: bytes, expire_ms: int) -> Cohort:
        return self._client_state.cohort(key, expire_ms)
