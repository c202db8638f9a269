"""The tokens of asyncio tasks, for redis-py's ``Lock``."""

from __future__ import annotations

import asyncio
import math
import threading
from weakref import WeakKeyDictionary, ref

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.interruptions import NO_LOOP, is_from_python
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot


class _TaskTokenSlot(TokenSlot):
    """The slot of a task. It stays in ``holding`` while it holds a claim, even if its task ends."""

    __slots__ = ("_holding", "_owner", "thread")

    def __init__(self, owner: object, kept: dict[_TaskTokenSlot, None]) -> None:
        super().__init__()
        self._owner = ref(owner)
        self._holding = kept
        self.thread = threading.get_ident()

    def put(self, hold: TokenHold | None) -> None:
        super().put(hold)
        if hold is None:
            self._holding.pop(self, None)
        else:
            self._holding[self] = None

    def is_empty(self) -> bool:
        """Whether it holds nothing, or its claim has ended."""
        return self.claim is None or self.claim.state is ENDED

    def is_over(self) -> bool:
        """Whether it is empty, or its lease has expired."""
        claim = self.claim
        if claim is None or claim.state is ENDED:
            return True
        if claim.deadline == -math.inf:  # a token set by hand, whose expiry is unknown
            return self._owner() is None
        return claim.deadline < monotonic()


class TaskTokenSlots:
    """The slots of a lock's tasks. Calling it returns the slot to release or extend.

    A task that has tried to acquire has its own slot, so it does not release another task's lock by
    mistake.
    """

    def __init__(self) -> None:
        self._own: WeakKeyDictionary[object, _TaskTokenSlot] = WeakKeyDictionary()  #: any thread
        self._holding: dict[_TaskTokenSlot, None] = {}  #: any thread
        #: any thread: a slot was removed whose lease expired; its release may still be requested
        self._forgot = False

    def __call__(self) -> TokenSlot:
        return self._own.get(current_owner()) or self._held()

    def own(self) -> TokenSlot:
        """Return the slot of the running task, a new one if it has none."""
        running = current_owner()
        token_slot = self._own.get(running)
        if token_slot is None:
            self._remove_expired()
            token_slot = self._own[running] = _TaskTokenSlot(running, self._holding)
        return token_slot

    def to_release(self, by_hand: bool) -> TokenHold | None:
        """Return the hold that ``release`` releases, or ``__aexit__`` if it is called by hand."""
        token_slot: TokenSlot | None = self._own.get(current_owner())
        if token_slot is None or (by_hand and token_slot.claim is None):
            token_slot = self._held()
            if token_slot.hold is None:  # the release is refused once; later ones may succeed
                self._remove_expired()
                self._forgot = False
        return token_slot.hold

    def _remove_expired(self) -> None:
        """Remove expired slots; a task that has not ended keeps its own."""
        for token_slot in list(self._holding):
            if token_slot.is_over():
                self._forgot = self._forgot or not token_slot.is_empty()
                self._holding.pop(token_slot, None)

    def _held(self) -> TokenSlot:
        """Return the slot of the only task of this thread that holds the lock, else an empty one.

        Expired leases count, as the caller may mean one: another task's lock must not be released
        instead.
        """
        here = threading.get_ident()
        found = [
            token_slot
            for token_slot in list(self._holding)
            if token_slot.thread == here and not token_slot.is_empty()
        ]
        if self._forgot and any(not token_slot.is_over() for token_slot in found):
            return TokenSlot()
        return found[0] if len(found) == 1 else TokenSlot()


def current_owner() -> object:
    """Return the running task; outside tasks, the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError as error:
        if not is_from_python(error, NO_LOOP):
            raise
        task = None
    return task or threading.current_thread()
