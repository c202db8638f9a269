"""One acquisition: what is to be held, by whom, and until when it may be believed."""

from __future__ import annotations

import math
import os
import secrets

from redis_lock_decorators.rules import keys


class Claim:
    """The state of one acquisition; deadlines are monotonic seconds.

    Attributes:
        lock_names: what is locked, in the order everybody takes it.
        keys: the Redis keys of the names.
        ttl: the lease in milliseconds.
        identifier: the value that proves who holds the keys.
        unique: the identifier was made for this claim, so a key that holds it is ours.
        owner: the thread or task that acquires.
        process: the process that acquires; a forked child holds nothing.
        deadline: when the lease ends for its holder; minus infinity before it is held.
        parting: how often it was asked to be let go: after that, gone keys are its own work.
        ended: it was released, or told lost.
        lost_to: why it was told lost; None if it was not.
    """

    __slots__ = (
        "deadline",
        "ended",
        "expire",
        "identifier",
        "keys",
        "lock_names",
        "lost_to",
        "owner",
        "parting",
        "process",
        "ttl",
        "unique",
    )

    def __init__(
        self,
        lock_names: tuple[str, ...],
        prefix: str,
        expire: float,
        ttl: int,
        *,
        identifier: str | None = None,
        owner: object = None,
    ) -> None:
        self.lock_names = lock_names
        self.keys = tuple([keys.key_of(prefix, name) for name in lock_names])
        self.expire = expire
        self.ttl = ttl
        self.unique = identifier is None
        self.identifier = identifier or secrets.token_hex(16)
        self.owner = owner
        self.process = os.getpid()
        self.deadline = -math.inf
        self.parting = 0
        self.ended = False
        self.lost_to: str | None = None

    @property
    def lock_name(self) -> str:
        """The name, or the names in one text."""
        return ", ".join(self.lock_names)

    def identify(self) -> None:
        """Take a new identifier, for a claim that holds nothing."""
        self.identifier = secrets.token_hex(16)

    def is_of_this_process(self) -> bool:
        """Whether this process made the claim, rather than a parent it was forked from."""
        return self.process == os.getpid()

    def is_live(self, now: float) -> bool:
        """Whether the holder may believe, at ``now``, that it is inside."""
        over = self.ended or self.parting > 0 or self.lost_to is not None
        return now < self.deadline and not over

    def is_lost(self, now: float) -> bool:
        """Whether the lease ended, by ``now``, before its holder let it go."""
        return self.lost_to is not None or (not self.ended and now >= self.deadline)
